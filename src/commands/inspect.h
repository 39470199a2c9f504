/* inspect.h: `mtrain inspect`: what a path is and whether it is good: a checkpoint, a run, a safetensors file, a shard.
 *
 * What is found becomes one JSON object, which --json prints as it is and which otherwise is printed as lines of
 * "name value". */
#ifndef MTRAIN_COMMANDS_INSPECT_H
#define MTRAIN_COMMANDS_INSPECT_H

#include <cjson/cJSON.h>

#include "base/error.h"

/* Fill `out` with what the path holds. Fails: CODE_CHECKPOINT; what was found until then is in `out`, all of it where
 * a checksum alone is wrong. */
bool inspect_checkpoint(cJSON *out, const char *path, struct error *e);
bool inspect_run(cJSON *out, const char *path, struct error *e);
bool inspect_safetensors(cJSON *out, const char *path, struct error *e);

/* The same for a shard of token ids, a FILE or PREFIX: format, counts, lengths of documents, range of ids. Every index
 * entry and every id is looked at; an id that is negative or not in the vocabulary of PREFIX.json is in `out` with its
 * place (first_bad_…). A file without index and magic is shown as each headerless type that it could be.
 * Fails: CODE_DATA: as shard_open and shard_index_scan, or a bad id; CODE_MACHINE. */
bool inspect_shard(cJSON *out, const char *path, struct error *e);

#endif

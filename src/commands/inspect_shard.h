/* inspect_shard.h: `mtrain inspect` of a shard: reads all of it and says what it is and whether it is good. */
#ifndef MTRAIN_COMMANDS_INSPECT_SHARD_H
#define MTRAIN_COMMANDS_INSPECT_SHARD_H

#include "base/error.h"

/* Prints format, type, counts, the range of ids, and document lengths of the shard that `path` names (a FILE or
 * PREFIX), as lines of "name value" or as one JSON object. Every index entry and every id is looked at. An id that
 * is negative or not in the vocabulary of PREFIX.json is printed with its place ("first_bad") and is then the error
 * too. A file without index and magic is shown as each headerless type that it could be. Fails: CODE_DATA: as
 * shard_open and shard_index_scan, or a bad id; CODE_MACHINE. */
bool inspect_shard_print(const char *path, bool json, struct error *e);

#endif

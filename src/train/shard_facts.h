/* shard_facts.h: PREFIX.json, what `tokenize` says about a shard that Megatron's pair cannot: whose ids these are.
 *
 *   {"tokenizer": "bytes", "vocab_size": 257, "end_of_document": 256, "documents": D, "tokens": N}
 *
 * The counts are there so that a .json which belongs to another shard is noticed. Used by the shard reader and
 * writer. */
#ifndef MTRAIN_TRAIN_SHARD_FACTS_H
#define MTRAIN_TRAIN_SHARD_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { SHARD_TOKENIZER = 256 };

struct shard_facts {
	char tokenizer[SHARD_TOKENIZER]; /* "": not known */
	int64_t vocab;                   /* 0: not known */
	int64_t end_of_document;         /* −1: none, or not known */
	int64_t documents, tokens;       /* −1: not known */
};

/* What is known of a shard without PREFIX.json: nothing. */
struct shard_facts shard_facts_none(void);

/* Reads the file. Members other than the five are passed over; `vocab_size` must be there.
 * Fails: CODE_DATA: unreadable, not JSON, a member of the wrong kind or out of range. */
bool shard_facts_read(struct shard_facts *f, const char *path, struct error *e);

/* The text of the file, one line, from malloc. */
char *shard_facts_text(const struct shard_facts *f);

#endif

/* shard_stream.h: several shards end to end: one long row of token ids.
 *
 * A stream is what training and evaluation see of the files: token p, whichever file holds it. Documents follow each
 * other in file order; a pattern's files come in byte order of their paths. Owns its shards. Used by data. */
#ifndef MTRAIN_TRAIN_SHARD_STREAM_H
#define MTRAIN_TRAIN_SHARD_STREAM_H

#include "train/shard.h"

struct shard_stream {
	struct shard *shards;
	int count, room;
	int64_t *begins;   /* [count + 1]: the first token of each shard, then the number of tokens */
	int64_t tokens;
	int64_t documents; /* −1: a format does not say */
};

/* Joins what the names mean (shard_find), in their order. A name with *, ? or [ that is no file is a pattern for
 * paths of files or prefixes; each shard that it matches counts once, and .json is no shard. Closes what it opened
 * on failure. Fails: as shard_find and shard_open; CODE_DATA: a pattern that matches nothing. */
bool shard_stream_open(struct shard_stream *t, const char *const *names, int count, enum shard_format format,
		       struct error *e);
void shard_stream_close(struct shard_stream *t);

/* Tokens begin … begin+count−1. Needs and fails: as shard_read. */
bool shard_stream_read(const struct shard_stream *t, int64_t begin, int64_t count, int64_t vocab, int32_t *out,
		       struct error *e);

/* Where to cut the stream in two near token `target` so that no document is cut: at the last document begin at or
 * before it, or if that is 0 at the first after it. *cut = −1: there is no such place, because the shard at `target`
 * knows no documents or there is only one. A shard without an index knows them by the token end_of_document (−1:
 * none), which closes one; the end of a file closes one too. Needs: 0 ≤ target < tokens. Fails: as shard_read. */
bool shard_stream_cut(const struct shard_stream *t, int64_t target, int64_t end_of_document, int64_t *cut,
		      struct error *e);

#endif

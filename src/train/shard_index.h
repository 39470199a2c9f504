/* shard_index.h: Megatron's .idx: where each sequence lies in the .bin, and where documents begin.
 *
 * The index is looked at where it is mapped, unaligned, and only in the entries that a question needs, so one of many
 * billion tokens opens at once and costs next to no memory. What is used is checked: the sequences must follow each
 * other in the .bin without a gap or an overlap, and end where it ends. Hence token p of the shard is simply element p
 * of the .bin, and the number of tokens follows from its size.
 *
 *   9 bytes "MMIDIDX\0\0"; u64 version = 1; u8 type; u64 S, sequences; u64 D, document boundaries;
 *   i32[S] lengths in tokens; i64[S] byte offsets into the .bin; i64[D] sequence numbers: first 0, last S.
 *
 * Owns nothing: the memory is the caller's. Used by the shard reader, inspect and the fuzzer. */
#ifndef MTRAIN_TRAIN_SHARD_INDEX_H
#define MTRAIN_TRAIN_SHARD_INDEX_H

#include "base/error.h"
#include "train/shard_token.h"

enum { SHARD_INDEX_HEADER = 34, SHARD_INDEX_VERSION = 1 };
extern const unsigned char shard_index_magic[9];

struct shard_index {
	const char *path; /* for messages */
	enum shard_token type;
	int64_t sequences;  /* S */
	int64_t boundaries; /* D ≥ 1; documents: D − 1 */
	int64_t bin_bytes;  /* size of the .bin */
	int64_t tokens;     /* in the .bin */
	const unsigned char *lengths, *offsets, *documents;
};

/* Reads the header and the first and last entries of an index of `size` bytes for a .bin of bin_bytes.
 * Fails: CODE_DATA: not an index, a type that is not whole numbers, counts that do not match the sizes. */
bool shard_index_init(struct shard_index *x, const char *path, const void *data, size_t size, int64_t bin_bytes,
		      struct error *e);

/* Entries as they stand. Needs: i within the counts. */
int64_t shard_index_length(const struct shard_index *x, int64_t i);
int64_t shard_index_offset(const struct shard_index *x, int64_t i);
int64_t shard_index_document(const struct shard_index *x, int64_t i);

/* Checks the sequences that hold tokens begin … begin+count−1. Needs: they are within the .bin, count ≥ 1.
 * Fails: CODE_DATA: an overlap, a gap, an offset out of range or inside a token, a negative length. */
bool shard_index_check(const struct shard_index *x, int64_t begin, int64_t count, struct error *e);

/* The last document begin at or before token `target`, and the first document begin (or the end of the .bin) after it.
 * Needs: 0 ≤ target < tokens. Fails: CODE_DATA: boundaries or offsets out of range or out of order. */
bool shard_index_around(const struct shard_index *x, int64_t target, int64_t *before, int64_t *after,
			struct error *e);

/* Checks every entry. Fails: CODE_DATA with the first bad one. */
bool shard_index_scan(const struct shard_index *x, struct error *e);

#endif

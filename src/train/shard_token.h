/* shard_token.h: how one token id is stored: the integer types of shard files, little-endian.
 *
 * The numbers of the enum are Megatron's type codes where it has one, so a code read from an index is the type itself.
 * Owns nothing. Used by the shard reader, the shard writer and inspect. */
#ifndef MTRAIN_TRAIN_SHARD_TOKEN_H
#define MTRAIN_TRAIN_SHARD_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shard_token {
	TOKEN_U8 = 1,
	TOKEN_I8 = 2,
	TOKEN_I16 = 3,
	TOKEN_I32 = 4,
	TOKEN_I64 = 5,
	TOKEN_U16 = 8,
	TOKEN_U32 = 256, /* of llm.c and headerless files: Megatron has no code for it */
};

/* Bytes of one id; 0: not a type of whole numbers (codes 6 and 7 are FP64 and FP32). */
size_t shard_token_size(enum shard_token type);

const char *shard_token_name(enum shard_token type); /* "u8", "i8", …; "?" for no type */

/* Id number i of a raw array, as it stands there. A u32 stays positive. */
int64_t shard_token_at(enum shard_token type, const void *raw, int64_t i);

/* Raw ids to int32. Gives the number of ids before the first that is negative or ≥ vocab: `count` when all are good.
 * What out holds from that one on is undefined. Needs: 0 < vocab < 2³¹. */
int64_t shard_token_decode(enum shard_token type, const void *raw, int64_t count, int64_t vocab, int32_t *out);

/* Lowers *least and raises *most to what the raw array holds. */
void shard_token_range(enum shard_token type, const void *raw, int64_t count, int64_t *least, int64_t *most);

/* Where `id` is in the raw array: *first and *last of its places, −1 and −1 if it is not there. */
void shard_token_find(enum shard_token type, const void *raw, int64_t count, int64_t id, int64_t *first,
		      int64_t *last);

#endif

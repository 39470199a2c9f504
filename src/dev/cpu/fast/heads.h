/* heads.h: what attention forward and backward share: where heads lie, rows as floats, and products of small blocks.
 *
 * A block is BLOCK rows (queries or keys) of a head as floats, each row padded with zeros to `stride`, a multiple of
 * LANES. Products go by tiles of TILE rows that live in registers.
 *
 * Used by attention.c and attention_backward.c of fast/. */
#ifndef MTRAIN_DEV_CPU_FAST_HEADS_H
#define MTRAIN_DEV_CPU_FAST_HEADS_H

#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"
#include "dev/ops.h"

enum {
	BLOCK = 64,
	TILE = 4,
};

struct heads {
	int64_t length, groups, per_group, size; /* T, KV, G, D */
	int64_t stride;                          /* of a row in a block */
	int64_t token;                           /* elements of a token in qkv */
};

INLINE struct heads heads_of(struct tensor qkv, int64_t sequence)
{
	int64_t size = qkv.shape[3];
	return (struct heads){sequence, qkv.shape[1], qkv.shape[2] - 2, size, ceil_div(size, LANES) * LANES,
			      qkv.shape[1] * qkv.shape[2] * size};
}

/* Offset in qkv of head h's query at row n; of its group's key and value. */
INLINE int64_t query_at(const struct heads *s, int64_t n, int64_t h)
{
	return n * s->token + (h / s->per_group * (s->per_group + 2) + h % s->per_group) * s->size;
}

INLINE int64_t key_at(const struct heads *s, int64_t n, int64_t group)
{
	return n * s->token + (group * (s->per_group + 2) + s->per_group) * s->size;
}

INLINE int64_t value_at(const struct heads *s, int64_t n, int64_t group)
{
	return key_at(s, n, group) + s->size;
}

/* `rows` rows of a head from element `at` of a tensor on, `apart` elements from one to the next, times factor; zero rows behind
 * them up to `all`. */
void FAST(block_load)(float *out, const struct heads *s, struct tensor from, int64_t at, int64_t apart, int64_t rows,
		      int64_t all, float factor);

/* The same rows as columns: out [D][BLOCK], zero columns behind them. */
void FAST(block_transpose)(float *out, const struct heads *s, struct tensor from, int64_t at, int64_t apart, int64_t rows);

/* The way back of block_load. */
void FAST(block_store)(struct tensor to, int64_t at, int64_t apart, const struct heads *s, const float *from, int64_t rows,
		       float factor);

/* out[i][c] = out[i][c]·keep[i] + Σ_k a[i·a_row + k·a_step]·b[k·b_step + c] for i < TILE and c < columns, up to a whole
 * vector; keep NULL: what was there does not count. */
void FAST(tile_product)(int64_t columns, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
			int64_t b_step, float *out, int64_t out_row, const float *keep);

#endif

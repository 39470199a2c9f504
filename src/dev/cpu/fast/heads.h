/* heads.h: what attention forward and backward share: where heads lie, rows as floats, and products of small blocks.
 *
 * A block is BLOCK rows (queries or keys) of a head as floats, each row padded with zeros to `stride`, a multiple of
 * LANES. Products go by tiles of TILE rows that live in registers.
 *
 * Used by attention.c and attention_backward.c of fast/. */
#ifndef MTRAIN_DEV_CPU_FAST_HEADS_H
#define MTRAIN_DEV_CPU_FAST_HEADS_H

#include "dev/cpu/fast/pack.h"
#include "dev/cpu/parallel.h"
#include "dev/ops.h"

enum {
	BLOCK = 64,
	TILE = 4,                       /* rows */
	TILE_V = LANES == 16 ? 4 : 2,   /* vectors */
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

/* `rows` rows of `size` elements, `from_stride` apart, times factor; zero rows behind them up to `all`. */
INLINE void block_load(enum dtype t, float *out, const struct heads *s, const void *from, int64_t from_stride, int64_t rows,
		       int64_t all, float factor)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < s->stride; c += LANES)
			vf_store(out + r * s->stride + c,
				 get_to(t, row_at(t, from, r * from_stride), c, s->size) * factor);
	memset(out + rows * s->stride, 0, (size_t)((all - rows) * s->stride) * sizeof(float));
}

/* The same rows as columns: out [size][BLOCK]. */
INLINE void block_transpose(enum dtype t, float *out, const struct heads *s, const void *from, int64_t from_stride,
			    int64_t rows)
{
	for (int64_t x = 0; x < BLOCK; x += LANES)
		pack_rows(t, out + x, BLOCK, LANES, row_at(t, from, x * from_stride), from_stride, rows - x, s->size);
}

INLINE void block_store(enum dtype t, void *to, int64_t to_stride, const struct heads *s, const float *from, int64_t rows,
			float factor)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < s->size; c += LANES)
			put_to(t, row_at(t, to, r * to_stride), c, vf_load(from + r * s->stride + c) * factor, s->size);
}

/* out[i] = out[i]·keep[i] + Σ_k a[i·a_row + k·a_step]·b[k·b_step], i < TILE, for `vectors` vectors of columns; keep NULL:
 * what was there does not count. */
INLINE void tile_columns(const int vectors, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
			 int64_t b_step, float *out, int64_t out_row, const float *keep)
{
	vf c[TILE][TILE_V];
#pragma GCC unroll 4
	for (int i = 0; i < TILE; i++)
#pragma GCC unroll 4
		for (int v = 0; v < vectors; v++)
			c[i][v] = keep ? vf_load(out + i * out_row + v * LANES) * keep[i] : vf_set(0);
	for (int64_t kk = 0; kk < k; kk++, a += a_step, b += b_step) {
		vf row[TILE_V];
#pragma GCC unroll 4
		for (int v = 0; v < vectors; v++)
			row[v] = vf_load(b + v * LANES);
#pragma GCC unroll 4
		for (int i = 0; i < TILE; i++) {
			vf x = vf_set(a[i * a_row]);
#pragma GCC unroll 4
			for (int v = 0; v < vectors; v++)
				c[i][v] = vf_fma(x, row[v], c[i][v]);
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < TILE; i++)
#pragma GCC unroll 4
		for (int v = 0; v < vectors; v++)
			vf_store(out + i * out_row + v * LANES, c[i][v]);
}

/* The same for `columns` columns, up to a whole vector. */
INLINE void tile_product(int64_t columns, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
			 int64_t b_step, float *out, int64_t out_row, const float *keep)
{
	int64_t c = 0;
	for (; c + (TILE_V - 1) * LANES < columns; c += TILE_V * LANES)
		tile_columns(TILE_V, k, a, a_row, a_step, b + c, b_step, out + c, out_row, keep);
	for (; c < columns; c += LANES)
		tile_columns(1, k, a, a_row, a_step, b + c, b_step, out + c, out_row, keep);
}

#endif

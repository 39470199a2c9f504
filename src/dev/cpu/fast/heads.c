#include "dev/cpu/fast/heads.h"

#include "dev/cpu/fast/pack.h"

INLINE void load(enum dtype t, float *out, const struct heads *s, const void *from, int64_t apart, int64_t rows, float factor)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < s->stride; c += LANES)
			vf_store(out + r * s->stride + c, get_to(t, row_at(t, from, r * apart), c, s->size) * factor);
}

void FAST(block_load)(float *out, const struct heads *s, struct tensor from, int64_t at, int64_t apart, int64_t rows,
		      int64_t all, float factor)
{
	BY_TYPE(from.dtype, load, out, s, row_at(from.dtype, from.data, at), apart, rows, factor);
	memset(out + rows * s->stride, 0, (size_t)((all - rows) * s->stride) * sizeof(float));
}

INLINE void transpose(enum dtype t, float *out, const struct heads *s, const void *from, int64_t apart, int64_t rows)
{
	for (int64_t x = 0; x < BLOCK; x += LANES)
		pack_rows(t, out + x, BLOCK, LANES, row_at(t, from, x * apart), apart, rows - x, s->size);
}

void FAST(block_transpose)(float *out, const struct heads *s, struct tensor from, int64_t at, int64_t apart, int64_t rows)
{
	BY_TYPE(from.dtype, transpose, out, s, row_at(from.dtype, from.data, at), apart, rows);
}

INLINE void store(enum dtype t, void *to, int64_t apart, const struct heads *s, const float *from, int64_t rows, float factor)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < s->size; c += LANES)
			put_to(t, row_at(t, to, r * apart), c, vf_load(from + r * s->stride + c) * factor, s->size);
}

void FAST(block_store)(struct tensor to, int64_t at, int64_t apart, const struct heads *s, const float *from, int64_t rows,
		       float factor)
{
	BY_TYPE(to.dtype, store, row_at(to.dtype, to.data, at), apart, s, from, rows, factor);
}

/* The part of a product that lives in registers: TILE rows of so many vectors. */
enum { VECTORS = LANES == 16 ? 4 : 2 };

INLINE void columns_product(const int vectors, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
			    int64_t b_step, float *out, int64_t out_row, const float *keep)
{
	vf c[TILE][VECTORS];
#pragma GCC unroll 4
	for (int i = 0; i < TILE; i++)
#pragma GCC unroll 4
		for (int v = 0; v < vectors; v++)
			c[i][v] = keep ? vf_load(out + i * out_row + v * LANES) * keep[i] : vf_set(0);
	for (int64_t kk = 0; kk < k; kk++, a += a_step, b += b_step) {
		vf row[VECTORS];
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

void FAST(tile_product)(int64_t columns, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
			int64_t b_step, float *out, int64_t out_row, const float *keep)
{
	int64_t c = 0;
	for (; c + (VECTORS - 1) * LANES < columns; c += VECTORS * LANES)
		columns_product(VECTORS, k, a, a_row, a_step, b + c, b_step, out + c, out_row, keep);
	for (; c < columns; c += LANES)
		columns_product(1, k, a, a_row, a_step, b + c, b_step, out + c, out_row, keep);
}

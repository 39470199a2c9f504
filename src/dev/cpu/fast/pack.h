/* pack.h: operands of a matrix product, rearranged so that the kernel reads them in one straight line.
 *
 * A panel holds `width` lines (rows of a, columns of b) and k steps of the summed dimension as [k][width] floats, F16
 * and BF16 converted on the way. Where the summed dimension is contiguous in memory, blocks are transposed in
 * registers: log2(rows) rounds of zipping the lower with the upper half of a block are its transposition.
 *
 * Used by gemm.c and attention. */
#ifndef MTRAIN_DEV_CPU_FAST_PACK_H
#define MTRAIN_DEV_CPU_FAST_PACK_H

#include "dev/cpu/fast/rows.h"

/* A panel may be written this many floats past its end, by stores that the next ones overwrite. */
enum { PACK_SLACK = LANES * LANES };

/* v holds `rows` vectors (a power of two ≤ LANES), read as a matrix [rows][LANES]; afterwards read as one line of
 * rows·LANES floats it is [LANES][rows]. */
INLINE void pack_transpose(vf *v, const int rows)
{
	vf w[LANES];
#pragma GCC unroll 4
	for (int half = rows / 2, round = rows; round > 1; round /= 2) {
#pragma GCC unroll 8
		for (int i = 0; i < half; i++) {
			w[2 * i] = vf_zip_low(v[i], v[i + half]);
			w[2 * i + 1] = vf_zip_high(v[i], v[i + half]);
		}
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++)
			v[i] = w[i];
	}
}

/* Lines that are rows in memory: line x, step kk at x·stride + kk. `rows` of them, those from `valid` on read as
 * zero; out [k][width], the lines put at its columns 0 … rows−1. Needs: width == rows or rows == LANES. */
INLINE void pack_rows(enum dtype t, float *out, const int width, const int rows, const void *from, int64_t stride,
		      int64_t valid, int64_t k)
{
	for (int64_t kk = 0; kk < k; kk += LANES) {
		int64_t n = k - kk < LANES ? k - kk : LANES;
		vf v[LANES];
#pragma GCC unroll 16
		for (int x = 0; x < rows; x++)
			v[x] = x >= valid ? vf_set(0) : n == LANES ? get(t, from, x * stride + kk)
								    : get_part(t, from, x * stride + kk, n);
		pack_transpose(v, rows);
		if (width == rows) {
#pragma GCC unroll 16
			for (int x = 0; x < rows; x++)
				vf_store(out + kk * width + x * LANES, v[x]);
		} else if (n == LANES) {
#pragma GCC unroll 16
			for (int x = 0; x < LANES; x++)
				vf_store(out + (kk + x) * width, v[x]);
		} else {
			for (int x = 0; x < n; x++)
				vf_store(out + (kk + x) * width, v[x]);
		}
	}
}

/* Lines that are columns in memory: line x, step kk at kk·stride + x; `valid` of them may be read. Fills the panels, `apart`
 * floats from one to the next, that hold lines 0 … lines−1, row by row, since that is how the memory lies. Writes whole
 * vectors, so that each step overwrites what the one before wrote too far. */
INLINE void pack_columns(enum dtype t, float *out, const int width, int64_t apart, const void *from, int64_t stride,
			 int64_t lines, int64_t valid, int64_t k)
{
	for (int64_t kk = 0; kk < k; kk++, out += width, from = row_at(t, from, stride)) {
		float *to = out;
		for (int64_t line = 0; line < lines; line += width, to += apart) {
#pragma GCC unroll 3
			for (int x = 0; x < width; x += LANES) {
				int64_t left = valid - line - x;
				vf_store(to + x, left >= LANES ? get(t, from, line + x)
						: left > 0     ? get_part(t, from, line + x, left)
							       : vf_set(0));
			}
		}
	}
}

#endif

#include "comm/sum.h"

#include "base/error.h"

/* Sums run over blocks that stay in the nearest cache, so each input is read once and no partial sum leaves it. */
enum { BLOCK = 1024 };

static void add_f32(float *restrict sum, const float *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += in[i];
}

static void add_f64(double *restrict sum, const double *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += in[i];
}

static void widen(float *restrict out, const void *in, enum dtype dtype, int64_t n)
{
	const uint16_t *restrict half = in;
	if (dtype == F16)
		for (int64_t i = 0; i < n; i++)
			out[i] = float_from_fp16(half[i]);
	else if (dtype == BF16)
		for (int64_t i = 0; i < n; i++)
			out[i] = float_from_bf16(half[i]);
	else
		memcpy(out, in, (size_t)n * sizeof *out);
}

static void narrow(void *out, const float *restrict in, enum dtype dtype, int64_t n)
{
	uint16_t *restrict half = out;
	if (dtype == F16)
		for (int64_t i = 0; i < n; i++)
			half[i] = fp16_from_float(in[i]);
	else if (dtype == BF16)
		for (int64_t i = 0; i < n; i++)
			half[i] = bf16_from_float(in[i]);
	else
		memcpy(out, in, (size_t)n * sizeof *in);
}

void sum_ranks(void *out, enum dtype dtype, const void *const *in, int ranks, int64_t count)
{
	size_t size = dtype_size(dtype);
	check(dtype_is_float(dtype));
	for (int64_t at = 0; at < count; at += BLOCK) {
		int64_t n = count - at < BLOCK ? count - at : BLOCK;
		size_t offset = (size_t)at * size;
		if (dtype == F64) {
			double sum[BLOCK];
			memcpy(sum, (const char *)in[0] + offset, (size_t)n * size);
			for (int r = 1; r < ranks; r++)
				add_f64(sum, (const void *)((const char *)in[r] + offset), n);
			memcpy((char *)out + offset, sum, (size_t)n * size);
			continue;
		}
		float sum[BLOCK], one[BLOCK];
		widen(sum, (const char *)in[0] + offset, dtype, n);
		for (int r = 1; r < ranks; r++) {
			widen(one, (const char *)in[r] + offset, dtype, n);
			add_f32(sum, one, n);
		}
		narrow((char *)out + offset, sum, dtype, n);
	}
}

#include "comm/sum.h"

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 vectorises only the simplest loops at O2 */
#endif

/* Sums run over blocks that stay in the nearest cache, so each input is read once and no partial sum leaves it. */
enum { BLOCK = 1024 };

#define INLINE static inline __attribute__((always_inline))

INLINE void widen_bf16(float *restrict out, const uint16_t *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = float_from_bf16(in[i]);
}

INLINE void narrow_bf16(uint16_t *restrict out, const float *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t b = bits_from_float(in[i]), rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
		out[i] = (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40u : rounded); /* bf16_from_float */
	}
}

INLINE void add_f32(float *restrict sum, const float *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += in[i];
}

INLINE void add_f64(double *restrict sum, const double *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += in[i];
}

static void widen_fp16(float *restrict out, const uint16_t *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = float_from_fp16(in[i]);
}

static void narrow_fp16(uint16_t *restrict out, const float *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = fp16_from_float(in[i]);
}

/* One block: `at` is its first element, n ≤ BLOCK. FP16 conversions are handed in: only they differ between machines
 * in more than what the compiler makes of the loops. */
INLINE void sum_block(void *out, enum dtype dtype, const void *const *in, int ranks, int64_t at, int64_t n,
		      void (*widen)(float *restrict, const uint16_t *restrict, int64_t),
		      void (*narrow)(uint16_t *restrict, const float *restrict, int64_t))
{
	union {
		double wide[BLOCK];
		float f[2][BLOCK];
	} sum;
	for (int r = 0; r < ranks; r++) {
		const uint16_t *half = (const uint16_t *)in[r] + at;
		float *to = sum.f[r > 0];
		switch (dtype) {
		case F64:
			if (r == 0)
				memcpy(sum.wide, (const double *)in[r] + at, (size_t)n * sizeof(double));
			else
				add_f64(sum.wide, (const double *)in[r] + at, n);
			continue;
		case F32:
			if (r == 0)
				memcpy(to, (const float *)in[r] + at, (size_t)n * sizeof(float));
			else
				add_f32(sum.f[0], (const float *)in[r] + at, n);
			continue;
		case F16:
			widen(to, half, n);
			break;
		default:
			widen_bf16(to, half, n);
		}
		if (r > 0)
			add_f32(sum.f[0], sum.f[1], n);
	}
	if (dtype == F64)
		memcpy((double *)out + at, sum.wide, (size_t)n * sizeof(double));
	else if (dtype == F32)
		memcpy((float *)out + at, sum.f[0], (size_t)n * sizeof(float));
	else if (dtype == F16)
		narrow((uint16_t *)out + at, sum.f[0], n);
	else
		narrow_bf16((uint16_t *)out + at, sum.f[0], n);
}

static void block_plain(void *out, enum dtype dtype, const void *const *in, int ranks, int64_t at, int64_t n)
{
	sum_block(out, dtype, in, ranks, at, n, widen_fp16, narrow_fp16);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,f16c")))

/* The processor's own conversions are those of dtype.h, bit for bit, but for the quiet bit of a NaN, which the sum
 * sets in any case. */
AVX2 static void widen_fp16_avx2(float *restrict out, const uint16_t *restrict in, int64_t n)
{
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + i))));
	for (; i < n; i++)
		out[i] = float_from_fp16(in[i]);
}

AVX2 static void narrow_fp16_avx2(uint16_t *restrict out, const float *restrict in, int64_t n)
{
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm_storeu_si128((void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
	for (; i < n; i++)
		out[i] = fp16_from_float(in[i]);
}

AVX2 static void block_avx2(void *out, enum dtype dtype, const void *const *in, int ranks, int64_t at, int64_t n)
{
	sum_block(out, dtype, in, ranks, at, n, widen_fp16_avx2, narrow_fp16_avx2);
}

static bool avx2(void)
{
	return __builtin_cpu_supports("avx2"); /* and with it F16C */
}
#else
#define block_avx2 block_plain

static bool avx2(void)
{
	return false;
}
#endif

void sum_ranks(void *out, enum dtype dtype, const void *const *in, int ranks, int64_t count)
{
	bool fast = avx2();
	check(dtype_is_float(dtype));
	for (int64_t at = 0; at < count; at += BLOCK) {
		int64_t n = count - at < BLOCK ? count - at : BLOCK;
		if (fast)
			block_avx2(out, dtype, in, ranks, at, n);
		else
			block_plain(out, dtype, in, ranks, at, n);
	}
}

/* simd.h: vectors of floats, one width for each build of the fast column.
 *
 * The fast files are written once over these few functions and compiled once for each instruction set. Arithmetic and
 * comparisons are the compiler's own vector types; what they cannot say (fused multiply-add, FP16, broadcasts) is
 * spelled out for AVX-512, for AVX2, and in plain C for any machine. Everything is inline, so nothing that was compiled
 * for one instruction set can be linked into another's code.
 *
 * Owns nothing. Used by the files of fast/ alone. */
#ifndef MTRAIN_DEV_CPU_FAST_SIMD_H
#define MTRAIN_DEV_CPU_FAST_SIMD_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

#if defined __AVX512F__
#include <immintrin.h>
#define LANES 16
#elif defined __AVX2__
#include <immintrin.h>
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));    /* also the result of a comparison: 0 or −1 */
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(LANES * 2)));   /* FP16 or BF16 as stored */

INLINE vf vf_load(const float *p)
{
	vf v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE void vf_store(float *p, vf v)
{
	memcpy(p, &v, sizeof v);
}

INLINE vu vu_load(const uint32_t *p)
{
	vu v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE vf vf_set(float x)
{
#if LANES == 16
	return _mm512_set1_ps(x);
#elif LANES == 8
	return _mm256_set1_ps(x);
#else
	return (vf){x, x, x, x};
#endif
}

INLINE vu vu_set(uint32_t x)
{
	return (vu){0} + x;
}

/* a·b + c, rounded once where the machine can. */
INLINE vf vf_fma(vf a, vf b, vf c)
{
#if LANES == 16
	return _mm512_fmadd_ps(a, b, c);
#elif LANES == 8
	return _mm256_fmadd_ps(a, b, c);
#else
	return a * b + c;
#endif
}

/* mask ? a : b, mask from a comparison. */
INLINE vf vf_select(vi mask, vf a, vf b)
{
#if LANES == 8
	return _mm256_blendv_ps(b, a, (vf)mask);
#else
	return (vf)((mask & (vi)a) | (~mask & (vi)b));
#endif
}

/* a > b ? a : b and a < b ? a : b: where one is a NaN, b. */
INLINE vf vf_max(vf a, vf b)
{
#if LANES == 16
	return _mm512_max_ps(a, b);
#elif LANES == 8
	return _mm256_max_ps(a, b);
#else
	return vf_select(a > b, a, b);
#endif
}

INLINE vf vf_min(vf a, vf b)
{
#if LANES == 16
	return _mm512_min_ps(a, b);
#elif LANES == 8
	return _mm256_min_ps(a, b);
#else
	return vf_select(a < b, a, b);
#endif
}

/* 0, 1, 2, … */
INLINE vu vu_lanes(void)
{
	vu v;
	for (int i = 0; i < LANES; i++)
		v[i] = (uint32_t)i;
	return v;
}

/* The sum and the largest of the lanes, halves onto halves. A NaN need not survive vf_top. */
INLINE float vf_sum(vf v)
{
#if LANES == 16
	return _mm512_reduce_add_ps(v);
#else
	float a[LANES];
	memcpy(a, &v, sizeof a);
	for (int half = LANES / 2; half; half /= 2)
		for (int i = 0; i < half; i++)
			a[i] += a[i + half];
	return a[0];
#endif
}

INLINE float vf_top(vf v)
{
#if LANES == 16
	return _mm512_reduce_max_ps(v);
#else
	float a[LANES];
	memcpy(a, &v, sizeof a);
	for (int half = LANES / 2; half; half /= 2)
		for (int i = 0; i < half; i++)
			a[i] = a[i] > a[i + half] ? a[i] : a[i + half];
	return a[0];
#endif
}

/* The lanes of a and b in turn, a first: the lower half of each, and the upper half. */
INLINE vf vf_zip_low(vf a, vf b)
{
#if LANES == 16
	const __m512i pick = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
	return _mm512_permutex2var_ps(a, pick, b);
#elif LANES == 8
	return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
#else
	return (vf){a[0], b[0], a[1], b[1]};
#endif
}

INLINE vf vf_zip_high(vf a, vf b)
{
#if LANES == 16
	const __m512i pick = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
	return _mm512_permutex2var_ps(a, pick, b);
#elif LANES == 8
	return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
#else
	return (vf){a[2], b[2], a[3], b[3]};
#endif
}

/* The 16-bit types. Rounding and NaNs are those of dtype.h, lane by lane. */
INLINE vf vf_from_bf16(vh h)
{
	return (vf)(__builtin_convertvector(h, vu) << 16);
}

INLINE vh vf_to_bf16(vf v)
{
	vu b = (vu)v;
	vu rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
	vu nan = (b >> 16) | 0x40u;
	vu is_nan = (vu)((b & 0x7fffffffu) > 0x7f800000u);
	return __builtin_convertvector((is_nan & nan) | (~is_nan & rounded), vh);
}

INLINE vf vf_from_fp16(vh h)
{
#if LANES == 16
	__m256i raw;
	memcpy(&raw, &h, sizeof raw);
	return _mm512_cvtph_ps(raw);
#elif LANES == 8
	__m128i raw;
	memcpy(&raw, &h, sizeof raw);
	return _mm256_cvtph_ps(raw);
#else
	vu b = __builtin_convertvector(h, vu);
	vu sign = (b & 0x8000u) << 16, rest = (b & 0x7fffu) << 13;
	vu finite = (vu)((vf)rest * 0x1p112f), special = rest | 0x7f800000u;
	vu is_special = (vu)(rest >= 0x0f800000u);
	return (vf)(sign | (is_special & special) | (~is_special & finite));
#endif
}

INLINE vh vf_to_fp16(vf v)
{
#if LANES == 16
	__m256i raw = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	vh h;
	memcpy(&h, &raw, sizeof h);
	return h;
#elif LANES == 8
	__m128i raw = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	vh h;
	memcpy(&h, &raw, sizeof h);
	return h;
#else
	vu b = (vu)v, sign = (b >> 16) & 0x8000u;
	b &= 0x7fffffffu;
	vu tiny = (vu)((vf)b + 0.5f) - 0x3f000000u;
	vu normal = (b + 0xfffu + ((b >> 13) & 1u) - 0x38000000u) >> 13;
	vu is_tiny = (vu)(b < 0x38800000u), is_big = (vu)(b >= 0x477ff000u), is_nan = (vu)(b > 0x7f800000u);
	vu r = (is_tiny & tiny) | (~is_tiny & normal);
	r = (is_big & 0x7c00u) | (~is_big & r);
	r = (is_nan & (0x7e00u | ((b >> 13) & 0x3ffu))) | (~is_nan & r);
	return __builtin_convertvector(sign | r, vh);
#endif
}

#endif

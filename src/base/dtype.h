/* dtype.h: the element types of tensors, and the 16-bit conversions.
 *
 * FP16 and BF16 are stored as uint16_t and computed in float; the conversions here round to nearest even, keep
 * subnormals, and are what every backend must agree with bit for bit. */
#ifndef MTRAIN_BASE_DTYPE_H
#define MTRAIN_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { F64, F32, BF16, F16, I32, I64, U8, DTYPE_COUNT };

size_t dtype_size(enum dtype t);      /* bytes of one element */
const char *dtype_name(enum dtype t); /* "fp64", "fp32", "bf16", "fp16", "i32", "i64", "u8" */

/* The type in which sums, statistics and main gradients of values of type t are kept: F64 for F64, else F32. */
static inline enum dtype dtype_sum(enum dtype t)
{
	return t == F64 ? F64 : F32;
}

static inline bool dtype_is_float(enum dtype t)
{
	return t <= F16;
}

static inline float float_from_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint32_t bits_from_float(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static inline float float_from_bf16(uint16_t h)
{
	return float_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_float(float f)
{
	uint32_t b = bits_from_float(f);
	if ((b & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)((b >> 16) | 0x40u); /* a NaN stays a NaN */
	return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

/* FP16 to float: exact. Shift exponent and mantissa into place and let one multiplication re-bias, which
 * normalises subnormals as well. */
static inline float float_from_fp16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
	uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
	if (rest >= 0x0f800000u) /* infinity or NaN */
		return float_from_bits(sign | 0x7f800000u | (rest & 0x007fffffu));
	return float_from_bits(sign | bits_from_float(float_from_bits(rest) * 0x1p112f));
}

/* Float to FP16: round to nearest even; above 65504 + half a step infinity; below the normal range the sum with a
 * constant makes the adder do the rounding. */
static inline uint16_t fp16_from_float(float f)
{
	uint32_t b = bits_from_float(f);
	uint16_t sign = (uint16_t)((b >> 16) & 0x8000u);
	b &= 0x7fffffffu;
	if (b > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | ((b >> 13) & 0x3ffu));
	if (b >= 0x477ff000u)
		return (uint16_t)(sign | 0x7c00u);
	if (b < 0x38800000u) /* result is subnormal or zero: ulp 2^-24, that of floats in [1/2, 1) */
		return (uint16_t)(sign | (bits_from_float(float_from_bits(b) + 0.5f) - 0x3f000000u));
	b += 0xfffu + ((b >> 13) & 1u);
	return (uint16_t)(sign | ((b - 0x38000000u) >> 13));
}

#endif

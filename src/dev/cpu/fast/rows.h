/* rows.h: reading and writing rows of F32, F16 or BF16 as vectors of floats.
 *
 * The type is an argument that is a constant after inlining: BY_TYPE turns a run-time type into such a constant once an
 * op, so that no loop asks for it. Ends of rows that fill no vector go through *_part, which touch only the elements
 * that are there.
 *
 * Used by the files of fast/ alone. */
#ifndef MTRAIN_DEV_CPU_FAST_ROWS_H
#define MTRAIN_DEV_CPU_FAST_ROWS_H

#include "dev/cpu/fast/simd.h"

/* Element i of an array of type t. */
INLINE void *row_at(enum dtype t, const void *p, int64_t i)
{
	return (void *)(uintptr_t)((const char *)p + (t == F32 ? i * 4 : i * 2));
}

/* Elements i … i+LANES−1. */
INLINE vf get(enum dtype t, const void *p, int64_t i)
{
	if (t == F32)
		return vf_load((const float *)p + i);
	vh h;
	memcpy(&h, (const uint16_t *)p + i, sizeof h);
	return t == F16 ? vf_from_fp16(h) : vf_from_bf16(h);
}

/* Elements i … i+n−1, n ≤ LANES; the lanes behind them are zero. */
INLINE vf get_part(enum dtype t, const void *p, int64_t i, int64_t n)
{
	if (t == F32) {
		vf v = {0};
		memcpy(&v, (const float *)p + i, (size_t)n * 4);
		return v;
	}
	vh h = {0};
	memcpy(&h, (const uint16_t *)p + i, (size_t)n * 2);
	return t == F16 ? vf_from_fp16(h) : vf_from_bf16(h);
}

INLINE void put(enum dtype t, void *p, int64_t i, vf v)
{
	if (t == F32) {
		vf_store((float *)p + i, v);
		return;
	}
	vh h = t == F16 ? vf_to_fp16(v) : vf_to_bf16(v);
	memcpy((uint16_t *)p + i, &h, sizeof h);
}

INLINE void put_part(enum dtype t, void *p, int64_t i, vf v, int64_t n)
{
	if (t == F32) {
		memcpy((float *)p + i, &v, (size_t)n * 4);
		return;
	}
	vh h = t == F16 ? vf_to_fp16(v) : vf_to_bf16(v);
	memcpy((uint16_t *)p + i, &h, (size_t)n * 2);
}

/* The elements from i on of an array of n, at most a vector of them. */
INLINE vf get_to(enum dtype t, const void *p, int64_t i, int64_t n)
{
	return i + LANES <= n ? get(t, p, i) : get_part(t, p, i, n - i);
}

INLINE void put_to(enum dtype t, void *p, int64_t i, vf v, int64_t n)
{
	if (i + LANES <= n)
		put(t, p, i, v);
	else
		put_part(t, p, i, v, n - i);
}

/* v as it reads after it has been stored in type t. */
INLINE vf rounded(enum dtype t, vf v)
{
	return t == F32 ? v : t == F16 ? vf_from_fp16(vf_to_fp16(v)) : vf_from_bf16(vf_to_bf16(v));
}

/* Calls f(constant type, …) for the run-time type t, which is one of the three. */
#define BY_TYPE(t, f, ...)                      \
	do {                                    \
		if ((t) == F32)                 \
			f(F32, __VA_ARGS__);    \
		else if ((t) == F16)            \
			f(F16, __VA_ARGS__);    \
		else                            \
			f(BF16, __VA_ARGS__);   \
	} while (0)

#endif

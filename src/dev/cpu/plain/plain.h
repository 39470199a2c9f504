/* plain.h: what the files of the defining column share: the type of sums, and reading and writing elements.
 *
 * Every file here is compiled twice. Once `real` is float: the ops on F32, BF16 and F16 storage; once it is double: the
 * ops on F64 storage (and conversions from or to it). plain.c picks by the type of a call's tensors. Nothing here takes
 * memory, uses threads or rounds in between: a value is rounded where the book of ops says that it is stored.
 *
 * Clarity comes first; whoever wants speed writes another column. Used by the files of this folder only. */
#ifndef MTRAIN_DEV_CPU_PLAIN_H
#define MTRAIN_DEV_CPU_PLAIN_H

#include <math.h>

#include "base/rng.h"
#include "dev/backend.h"

#if PLAIN_DOUBLE
typedef double real;
#define PLAIN(name) plain_double_##name
#define MATH(function) function /* MATH(exp)(x): exp or expf */
#else
typedef float real;
#define PLAIN(name) plain_float_##name
#define MATH(function) function##f
#endif

/* void PLAIN(gemm)(struct device *dev, const struct op_gemm *a), and so on for every op. */
#define PLAIN_DECLARE(name) void PLAIN(name)(struct device * dev, const struct op_##name *a);
OPS(PLAIN_DECLARE)
#undef PLAIN_DECLARE

/* Element i of a float tensor. */
static inline real get(struct tensor t, int64_t i)
{
	switch (t.dtype) {
	case F64:
		return (real)((const double *)t.data)[i];
	case F32:
		return (real)((const float *)t.data)[i];
	case BF16:
		return (real)float_from_bf16(((const uint16_t *)t.data)[i]);
	default:
		return (real)float_from_fp16(((const uint16_t *)t.data)[i]);
	}
}

/* Rounds v to the tensor's type and stores it as element i. */
static inline void put(struct tensor t, int64_t i, real v)
{
	switch (t.dtype) {
	case F64:
		((double *)t.data)[i] = (double)v;
		break;
	case F32:
		((float *)t.data)[i] = (float)v;
		break;
	case BF16:
		((uint16_t *)t.data)[i] = bf16_from_float((float)v);
		break;
	default:
		((uint16_t *)t.data)[i] = fp16_from_float((float)v);
		break;
	}
}

/* v as it reads after it has been stored in a type. */
static inline real rounded(enum dtype type, real v)
{
	double room;
	struct tensor t = tensor_1d(&room, type, 1);
	put(t, 0, v);
	return get(t, 0);
}

static inline void add_to(struct tensor t, int64_t i, real v)
{
	put(t, i, get(t, i) + v);
}

static inline int64_t token(struct tensor t, int64_t i)
{
	return ((const int32_t *)t.data)[i];
}

/* Σ x·y over `count` elements from x_at and from y_at on. */
static inline real dot(struct tensor x, int64_t x_at, struct tensor y, int64_t y_at, int64_t count)
{
	real sum = 0;
	for (int64_t i = 0; i < count; i++)
		sum += get(x, x_at + i) * get(y, y_at + i);
	return sum;
}

/* What element e of the sample with global number n is multiplied by: 0 or 1/(1 − rate). */
static inline real dropout_factor(const struct dropout *d, int64_t n, int64_t e)
{
	if (d->rate == 0)
		return 1;
	struct philox draw = rng_dropout(d->seed, (uint64_t)e / 4, (uint64_t)n, d->site);
	return draw.word[e % 4] >= rng_threshold(d->rate) ? (real)(1 / (1 - d->rate)) : 0;
}

/* The same for element c of row n of an [N, width] tensor whose rows are placed by the span. */
static inline real dropout_in_row(struct device *dev, const struct dropout *d, int64_t n, int64_t width, int64_t c)
{
	if (d->rate == 0)
		return 1;
	int64_t sample = dev->scalars->samples + span_sample(&d->span, n);
	return dropout_factor(d, sample, span_token(&d->span, n) * width + c);
}

#endif

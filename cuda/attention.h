/* attention.h: what the attention kernels share: where heads lie, and dropout of scores.
 *
 * attention.cu picks: tensor-core kernels (attention_forward.cu, attention_backward.cu) for F16 and BF16 with head sizes
 * 64, 80, 96, 128; attention_simple.cu for everything else, in FP32 arithmetic throughout. Neither keeps a [T, T]
 * matrix, and both run backward in two passes, one over keys (dk, dv) and one over queries (dq), so that every sum is
 * one thread's own and in one order.
 *
 * Each kernel is made twice: for whole sequences, and for PARTs, where queries and keys are two shares of the tokens of a
 * sequence: then keys and values have a tensor of their own, spans say which tokens the rows are, and sums in F32 are
 * merged with, or added to, what is there. Used by those files only. */
#ifndef MTRAIN_CUDA_ATTENTION_H
#define MTRAIN_CUDA_ATTENTION_H

#include "dropout.h"
#include "vector.h"

/* qkv [B·T, KV, G + 2, D]; kv of a part [B·T, KV, 2, D], else it is qkv; out and dout [B·T, H, D]; lse and delta [B, H, T]. */
struct attention_shape {
	int T, KV, G, D, H, batch;
	int64_t first_head;
	float scale, slope; /* slope: scale·log₂e, for powers of two */
	drop dropout;       /* of a part its span places the queries */
	struct span keys;   /* of a part */
	bool whole_draws;   /* four neighbouring keys from the first on share one draw of masks */
	bool fresh;         /* of a part: what it is merged with counts as nothing */
	const float *slopes; /* [H]: linear biases; NULL: none */
};

/* How many keys query t sees: the first ones. */
template <bool PART> __device__ inline int keys_seen(const attention_shape &s, int t)
{
	if constexpr (PART)
		return (int)span_before(&s.keys, span_place(&s.dropout.span, t) + 1);
	return t + 1;
}

/* The first query that sees key u. */
template <bool PART> __device__ inline int first_seeing(const attention_shape &s, int u)
{
	if constexpr (PART)
		return (int)span_before(&s.dropout.span, span_place(&s.keys, u));
	return u;
}

/* What a token of distance takes from the products q·k of head h, before the scale. */
__device__ inline float lean_of(const attention_shape &s, int h)
{
	return s.slopes ? s.slopes[h] / s.scale : 0.0f;
}

/* How many tokens key u is ahead of query t: 0 or less where it is seen. */
template <bool PART> __device__ inline float ahead_of(const attention_shape &s, int t, int u)
{
	if constexpr (PART)
		return (float)((int)span_place(&s.keys, u) - (int)span_place(&s.dropout.span, t));
	return (float)(u - t);
}

/* One head of one sequence: first elements, and the elements from a token to the next. */
struct head_place {
	int64_t query;             /* in qkv */
	int64_t key, value;        /* in kv */
	int64_t out;               /* in out */
	int64_t row;               /* in lse and delta */
	int token, kv_token, out_token;
	uint64_t sample;                  /* its global number, for dropout */
	int64_t element;                  /* dropout element of (token 0, token 0) */
};

template <bool PART> __device__ inline head_place place_head(const attention_shape &s, int b, int h)
{
	head_place p;
	int g = h / s.G;
	int64_t group = (((int64_t)b * s.T) * s.KV + g) * (s.G + 2) * s.D;
	p.query = group + h % s.G * s.D;
	p.token = s.KV * (s.G + 2) * s.D;
	p.key = PART ? (((int64_t)b * s.T) * s.KV + g) * 2 * s.D : group + s.G * s.D;
	p.kv_token = PART ? s.KV * 2 * s.D : p.token;
	p.value = p.key + s.D;
	p.out = ((int64_t)b * s.T * s.H + h) * s.D;
	p.out_token = s.H * s.D;
	p.row = ((int64_t)b * s.H + h) * s.T;
	p.sample = s.dropout.on ? (uint64_t)(s.dropout.scalars->samples + s.dropout.span.sample + b) : 0;
	p.element = PART ? (s.first_head + h) * s.keys.sequence * s.keys.sequence : (s.first_head + h) * s.T * s.T;
	return p;
}

/* Dropout element of query t and key u. */
template <bool PART> __device__ inline int64_t mask_at(const attention_shape &s, const head_place &p, int t, int u)
{
	if constexpr (PART)
		return p.element + span_place(&s.dropout.span, t) * s.keys.sequence + span_place(&s.keys, u);
	return p.element + (int64_t)t * s.T + u;
}

/* How a query's sum over some keys joins that over others: what is there and what comes, times these. */
struct merge {
	float old, fresh, lse;
};

__device__ inline merge merge_of(const attention_shape &s, float before, float here)
{
	before = s.fresh ? -INFINITY : before;
	float top = before > here ? before : here, all = top + logf(expf(before - top) + expf(here - top));
	return {expf(before - all), expf(here - all), all};
}

__device__ inline float merged(const attention_shape &s, const merge &m, float old, float fresh)
{
	return s.fresh ? fresh * m.fresh : old * m.old + fresh * m.fresh;
}

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.69314718f;

/* Whether the tensor cores serve these. */
static inline bool attention_has_tensor_cores(enum dtype type, const attention_shape &s)
{
	return type != F32 && s.scale > 0 && (s.D == 64 || s.D == 80 || s.D == 96 || s.D == 128);
}

/* What kernels read and write. */
struct attention_forward_args {
	void *out;  /* T; of a part F32 */
	float *lse;
	const void *qkv, *kv;
	enum dtype type;
	bool part;
};

struct attention_backward_args {
	void *dqkv;      /* T; whole */
	float *dq, *dkv; /* of a part: added to */
	const void *dout, *qkv, *kv;
	const float *lse, *delta;
	enum dtype type;
	bool part;
};

void attention_forward_tensor(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s);
void attention_forward_simple(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s);
void attention_backward_tensor(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s);
void attention_backward_simple(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s);

#endif

/* attention.h: what the attention kernels share: where heads lie, and dropout of scores.
 *
 * attention.cu picks: tensor-core kernels (attention_forward.cu, attention_backward.cu) for F16 and BF16 with head sizes
 * 64, 80, 96, 128; attention_simple.cu for everything else, in FP32 arithmetic throughout. Neither keeps a [T, T]
 * matrix, and both run backward in two passes, one over keys (dk, dv) and one over queries (dq), so that every sum is
 * one thread's own and in one order. Used by those files only. */
#ifndef MTRAIN_CUDA_ATTENTION_H
#define MTRAIN_CUDA_ATTENTION_H

#include "dropout.h"
#include "vector.h"

/* qkv [B·T, KV, G + 2, D]; out and dout [B·T, H, D]; lse and delta [B, H, T]. */
struct attention_shape {
	int T, KV, G, D, H, batch;
	int64_t first_head;
	float scale, slope; /* slope: scale·log₂e, for powers of two */
	drop dropout;
};

/* One head of one sequence: first elements, and the elements from a token to the next. */
struct head_place {
	int64_t query, key, value; /* in qkv */
	int64_t out;               /* in out */
	int64_t row;               /* in lse and delta */
	int token, out_token;
	uint64_t sample;                  /* its global number, for dropout */
	int64_t element;                  /* dropout element of (t = 0, u = 0) */
};

__device__ inline head_place place_head(const attention_shape &s, int b, int h)
{
	head_place p;
	int g = h / s.G;
	int64_t group = (((int64_t)b * s.T) * s.KV + g) * (s.G + 2) * s.D;
	p.query = group + h % s.G * s.D;
	p.key = group + s.G * s.D;
	p.value = p.key + s.D;
	p.token = s.KV * (s.G + 2) * s.D;
	p.out = ((int64_t)b * s.T * s.H + h) * s.D;
	p.out_token = s.H * s.D;
	p.row = ((int64_t)b * s.H + h) * s.T;
	p.sample = s.dropout.on ? (uint64_t)(s.dropout.scalars->samples + s.dropout.span.sample + b) : 0;
	p.element = (s.first_head + h) * s.T * s.T;
	return p;
}

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.69314718f;

/* Whether the tensor cores serve these. */
static inline bool attention_has_tensor_cores(enum dtype type, const attention_shape &s)
{
	return type != F32 && s.scale > 0 && (s.D == 64 || s.D == 80 || s.D == 96 || s.D == 128);
}

void attention_forward_tensor(const struct kernel_place *k, const struct op_attention_forward *a, const attention_shape &s);
void attention_forward_simple(const struct kernel_place *k, const struct op_attention_forward *a, const attention_shape &s);

/* These find delta filled. */
void attention_backward_tensor(const struct kernel_place *k, const struct op_attention_backward *a, const attention_shape &s);
void attention_backward_simple(const struct kernel_place *k, const struct op_attention_backward *a, const attention_shape &s);

#endif

/* Calls of gemm, of what belongs to it, and of attention. */
#include <math.h>

#include "cases.h"

INVOKE(gemm)
INVOKE(gelu_forward)
INVOKE(attention_forward)
INVOKE(attention_backward)

bool case_gemm(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(gemm);
	int64_t m = size[0], k = size[1], n = size[2];
	unsigned which = variant / GEMM_STEP;
	op->a_transposed = variant & GEMM_A_TRANSPOSED;
	op->b_transposed = variant & GEMM_B_TRANSPOSED;
	op->accumulate = which == GEMM_CASE_ACCUMULATE;
	op->gelu = which == GEMM_CASE_ERF || which == GEMM_CASE_DERF ? GELU_ERF : GELU_TANH;
	if (which == GEMM_CASE_BIAS)
		op->epilogue = GEMM_BIAS;
	if (which == GEMM_CASE_TANH || which == GEMM_CASE_ERF || which == GEMM_CASE_NO_BIAS)
		op->epilogue = GEMM_BIAS_GELU;
	if (which == GEMM_CASE_DTANH || which == GEMM_CASE_DERF)
		op->epilogue = GEMM_DGELU;
	ADD(op->accumulate ? INOUT : OUT, out, op->accumulate ? KIND_S : KIND_T, m, n)->late = op->epilogue == GEMM_BIAS_GELU;
	ADD(IN, a, KIND_T, op->a_transposed ? k : m, op->a_transposed ? m : k);
	struct arg *b = ADD(IN, b, KIND_T, op->b_transposed ? n : k, op->b_transposed ? k : n);
	for (int64_t i = 0; i < b->count; i++)
		b->values[i] /= sqrt((double)k);
	if (op->epilogue == GEMM_BIAS || (op->epilogue == GEMM_BIAS_GELU && which != GEMM_CASE_NO_BIAS))
		ADD(IN, bias, KIND_T, n);
	if (op->epilogue == GEMM_BIAS_GELU)
		ADD(OUT, aux, KIND_T, m, n);
	if (op->epilogue == GEMM_DGELU)
		ADD(IN, aux, KIND_T, m, n);
	return true;
}

bool case_gelu_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(gelu_forward);
	op->gelu = variant & GELU_IS_ERF ? GELU_ERF : GELU_TANH;
	ADD(OUT, out, KIND_T, size[0], size[1]);
	ADD(IN, x, KIND_T, size[0], size[1]);
	return true;
}

static struct dropout dropout_of(unsigned variant, int64_t sequence)
{
	return (struct dropout){.rate = variant & ATTENTION_DROPOUT ? 0.2 : 0, .seed = 0xfedcba9876543210u, .site = 8 * 5 + 1,
				.span = {.sample = 7, .first = 0, .length = sequence, .sequence = sequence}};
}

bool case_attention_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(attention_forward);
	int64_t batch = size[0], sequence = size[1], groups = size[2], per_group = size[3], head = size[4];
	ADD(OUT, out, KIND_T, batch * sequence, groups * per_group, head);
	ADD(OUT, lse, KIND_S, batch, groups * per_group, sequence);
	ADD(IN, qkv, KIND_T, batch * sequence, groups, per_group + 2, head);
	op->sequence = sequence;
	op->scale = 1 / sqrt((double)head);
	op->dropout = dropout_of(variant, sequence);
	op->first_head = 3;
	return true;
}

bool case_attention_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(attention_backward);
	int64_t batch = size[0], sequence = size[1], groups = size[2], per_group = size[3], head = size[4];
	ADD(OUT, dqkv, KIND_T, batch * sequence, groups, per_group + 2, head);
	ADD(ROOM, delta, KIND_S, batch, groups * per_group, sequence);
	ADD(IN, dout, KIND_T, batch * sequence, groups * per_group, head);
	ADD(IN, out, KIND_T, batch * sequence, groups * per_group, head);
	ADD(IN, lse, KIND_S, batch, groups * per_group, sequence);
	ADD(IN, qkv, KIND_T, batch * sequence, groups, per_group + 2, head);
	case_derive(c, "out", case_attention_forward, size, variant, "out");
	case_derive(c, "lse", case_attention_forward, size, variant, "lse");
	op->sequence = sequence;
	op->scale = 1 / sqrt((double)head);
	op->dropout = dropout_of(variant, sequence);
	op->first_head = 3;
	return true;
}

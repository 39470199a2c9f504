/* Calls of gemm, of what belongs to it, and of attention. */
#include <math.h>

#include "cases.h"

INVOKE(gemm)
INVOKE(gelu_forward)
INVOKE(attention_forward)
INVOKE(attention_backward)
INVOKE(attention_part_forward)
INVOKE(attention_part_backward)
INVOKE(attention_delta)
INVOKE(heads_copy)

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

/* Slopes from steep to gentle, a head's by its number here. */
#define ADD_SLOPES(variant, heads, steepest)                                    \
	do {                                                                    \
		if ((variant) & ATTENTION_SLOPES)                               \
			set_slopes(ADD(IN, slopes, KIND_S, heads), steepest);   \
	} while (0)
static void set_slopes(struct arg *slopes, double steepest)
{
	for (int64_t h = 0; h < slopes->count; h++)
		slopes->values[h] = steepest / (double)(1 + h * h);
}

/* A part of keys that are far away gives a sum of its own, and that is known to FP32 only as well as scores are that have grown
 * by the bias: at most 6 over the part's length. */
static double part_steepest(int64_t length)
{
	return 6.0 / (double)length;
}

bool case_attention_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(attention_forward);
	int64_t batch = size[0], sequence = size[1], groups = size[2], per_group = size[3], head = size[4];
	ADD(OUT, out, KIND_T, batch * sequence, groups * per_group, head);
	ADD(OUT, lse, KIND_S, batch, groups * per_group, sequence);
	ADD(IN, qkv, KIND_T, batch * sequence, groups, per_group + 2, head);
	ADD_SLOPES(variant, groups * per_group, 0.7);
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
	ADD_SLOPES(variant, groups * per_group, 0.7);
	op->sequence = sequence;
	op->scale = 1 / sqrt((double)head);
	op->dropout = dropout_of(variant, sequence);
	op->first_head = 3;
	return true;
}

/* Queries of the second of four ranks that share sequences, in two stretches where the length is even, and keys of that
 * rank, of the first, of the last, or in other places altogether. */
static struct span part_span(int64_t length, int64_t rank)
{
	bool halves = length % 2 == 0;
	return (struct span){.sample = 7, .first = halves ? rank * (length / 2) : rank * length, .length = length,
			     .sequence = 4 * length, .jump = halves ? (3 - rank) * length : 0};
}

static struct span part_keys(int64_t length, unsigned which)
{
	static const int64_t ranks[] = {[PART_OWN] = 1, [PART_EARLIER] = 0, [PART_LATER] = 3};
	if (which < PART_MIXED)
		return part_span(length, ranks[which]);
	return (struct span){.first = length / 3 + 1, .length = length, .sequence = 4 * length,
			     .jump = length % 2 == 0 ? length + 1 : 0};
}

bool case_attention_part_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(attention_part_forward);
	int64_t batch = size[0], length = size[1], groups = size[2], per_group = size[3], head = size[4];
	op->fresh = variant / PART_FRESH;
	ADD(op->fresh ? OUT : INOUT, sum, KIND_S, batch * length, groups * per_group, head)->late = true;
	struct arg *lse = ADD(op->fresh ? OUT : INOUT, lse, KIND_S, batch, groups * per_group, length);
	if (!op->fresh)
		lse->values[0] = -INFINITY; /* saw nothing so far */
	ADD(IN, qkv, KIND_T, batch * length, groups, per_group + 2, head);
	ADD(IN, kv, KIND_T, batch * length, groups, 2, head);
	ADD_SLOPES(variant % PART_STEP, groups * per_group, part_steepest(length));
	op->scale = 1 / sqrt((double)head);
	op->dropout = dropout_of(variant % PART_STEP, length);
	op->dropout.span = part_span(length, 1);
	op->keys = part_keys(length, variant % PART_FRESH / PART_STEP);
	op->first_head = 3;
	return true;
}

bool case_attention_part_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(attention_part_backward);
	int64_t batch = size[0], length = size[1], groups = size[2], per_group = size[3], head = size[4];
	ADD(INOUT, dq, KIND_S, batch * length, groups * per_group, head)->late = true;
	ADD(INOUT, dkv, KIND_S, batch * length, groups, 2, head)->late = true;
	ADD(IN, delta, KIND_S, batch, groups * per_group, length);
	ADD(IN, dout, KIND_T, batch * length, groups * per_group, head);
	ADD(IN, lse, KIND_S, batch, groups * per_group, length);
	ADD(IN, qkv, KIND_T, batch * length, groups, per_group + 2, head);
	ADD(IN, kv, KIND_T, batch * length, groups, 2, head);
	case_derive(c, "lse", case_attention_part_forward, size, variant, "lse");
	ADD_SLOPES(variant % PART_STEP, groups * per_group, part_steepest(length));
	op->scale = 1 / sqrt((double)head);
	op->dropout = dropout_of(variant % PART_STEP, length);
	op->dropout.span = part_span(length, 1);
	op->keys = part_keys(length, variant / PART_STEP);
	op->first_head = 3;
	return true;
}

bool case_attention_delta(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(attention_delta);
	int64_t batch = size[0], length = size[1], heads = size[2] * size[3], head = size[4];
	ADD(OUT, delta, KIND_S, batch, heads, length);
	ADD(IN, dout, KIND_T, batch * length, heads, head);
	ADD(IN, out, KIND_T, batch * length, heads, head);
	return true;
}

/* As context parallelism copies: keys and values out of qkv; query gradients, key and value gradients into its gradient. */
bool case_heads_copy(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(heads_copy);
	int64_t rows = size[0] * size[1], groups = size[2], per_group = size[3], head = size[4];
	ADD(INOUT, to, KIND_T, rows, groups, variant == HEADS_KEYS ? 2 : per_group + 2, head);
	ADD(IN, from, variant == HEADS_KEYS ? KIND_T : KIND_S, rows, groups,
	    variant == HEADS_KEYS ? per_group + 2 : variant == HEADS_QUERIES ? per_group : 2, head);
	op->to_first = variant == HEADS_KEYS_BACK ? per_group : 0;
	op->from_first = variant == HEADS_KEYS ? per_group : 0;
	op->count = variant == HEADS_QUERIES ? per_group : 2;
	return true;
}

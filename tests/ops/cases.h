/* cases.h: the table of calls that the tests make: for each op its variants and its shapes.
 *
 * A builder fills a call whose storage and grid are set, and says whether the variant exists. Inputs that are another
 * op's output (statistics for backward, say) are computed by that op on FP64 storage, so that forward and backward
 * calls of one shape and variant belong together. */
#ifndef MTRAIN_TESTS_OPS_CASES_H
#define MTRAIN_TESTS_OPS_CASES_H

#include "call.h"

enum { SIZE_DIMS = 5 };

typedef bool builder(struct call *c, const int64_t *size, unsigned variant);

struct op_cases {
	const char *name;
	builder *build;
	unsigned variants;            /* 0 … variants − 1; some do not exist */
	const int64_t (*sizes)[SIZE_DIMS];
	int size_count;
	int whole_sizes;              /* those before it take every variant, those from it on every fourth, in turn */
	int64_t bench[SIZE_DIMS];     /* a shape worth timing: GPT-2 124M, 4 × 256 tokens */
	unsigned bench_variant;
	double bench_flops;           /* of the bench call; 0: bound by memory, not told */
};

extern const struct op_cases op_cases[];
extern const int op_cases_count;

/* Whether a size takes a variant. */
bool case_taken(const struct op_cases *cases, int size, unsigned variant);

/* Builds a call in a type, on the grid of another; false: there is no such variant. */
bool case_build(struct call *c, builder *build, enum dtype storage, enum dtype grid, const int64_t *size,
		unsigned variant);

/* For builders: the values of c's tensor become what `output` of the call built and run in FP64 holds. */
void case_derive(struct call *c, const char *name, builder *build, const int64_t *size, unsigned variant,
		 const char *output);

/* Variant bits of the builders, for tests that pick their own. */
enum {
	POSITION_TABLE = 1, POSITION_DROPOUT = 2, POSITION_IN_PLACE = 4,
	NORM_IS_RMS = 1, NORM_NO_BIAS = 2, NORM_RESIDUAL = 4, NORM_IN_PLACE = 8,
	RESIDUAL_BIAS = 1, RESIDUAL_DROPOUT = 2, RESIDUAL_NORM = 4, RESIDUAL_RMS = 8, RESIDUAL_INTO_RESIDUAL = 16,
	RESIDUAL_INTO_X = 32,
	RESIDUAL_NO_DX = 4, RESIDUAL_IN_PLACE = 8, /* of residual_backward */
	GEMM_A_TRANSPOSED = 1, GEMM_B_TRANSPOSED = 2, GEMM_STEP = 4, /* then · one of: */
	GEMM_CASE_PLAIN = 0, GEMM_CASE_BIAS, GEMM_CASE_TANH, GEMM_CASE_DTANH, GEMM_CASE_ERF, GEMM_CASE_DERF,
	GEMM_CASE_ACCUMULATE, GEMM_CASE_NO_BIAS, /* GELU alone */ GEMM_CASES,
	ATTENTION_DROPOUT = 1, ATTENTION_SLOPES = 2, ATTENTION_VARIANTS = 4,
	PART_STEP = ATTENTION_VARIANTS, /* then · one of: */
	PART_OWN = 0, PART_EARLIER, PART_LATER, PART_MIXED, PART_CASES,
	PART_FRESH = PART_STEP * PART_CASES,
	HEADS_KEYS = 0, HEADS_QUERIES, HEADS_KEYS_BACK, HEADS_CASES,
	GELU_IS_ERF = 1,
	ROPE_INVERSE = 1, ROPE_PART = 2,
	LOSS_PADDED = 1, LOSS_EMPTY = 2,
	ADAMW_SKIPPED = 1, ADAMW_NO_WEIGHT = 2,
	VERDICT_FINE = 0, VERDICT_BAD_SUM, VERDICT_BAD_LOSS, VERDICT_FIXED, VERDICT_CASES,
};

builder case_embedding_forward, case_embedding_backward, case_position_forward, case_position_backward,
	case_norm_forward, case_norm_backward, case_residual_forward, case_residual_backward, case_gemm,
	case_gelu_forward, case_swiglu_forward, case_swiglu_backward, case_rope, case_unit_rows_forward,
	case_unit_rows_backward, case_bias_backward,
	case_attention_forward, case_attention_backward, case_attention_part_forward, case_attention_part_backward,
	case_attention_delta, case_heads_copy, case_loss_stats, case_loss_combine,
	case_loss_backward, case_loss_total, case_add, case_convert, case_square_sums, case_step_verdict, case_adamw;

/* Builders' shorthand: the op's struct, and adding one of its tensors. */
#define CASE(name)                                                                      \
	struct op_##name *op = &c->op.name;                                             \
	c->invoke = invoke_##name
#define INVOKE(name)                                                                    \
	static void invoke_##name(struct device *dev, const struct call *c)             \
	{                                                                               \
		op_##name(dev, &c->op.name);                                            \
	}
#define ADD(role, t, kind, ...)                                                         \
	call_add(c, #t, &op->t, role, kind, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
		 (int64_t[]){__VA_ARGS__})

#endif

#include "cases.h"

#include <stdio.h>
#include <stdlib.h>

#include "dev/cpu/cpu.h"

bool case_taken(const struct op_cases *cases, int size, unsigned variant)
{
	return size < cases->whole_sizes || variant % 4 == ((unsigned)size + variant / 4) % 4;
}

bool case_build(struct call *c, builder *build, enum dtype storage, enum dtype grid, const int64_t *size,
		unsigned variant)
{
	memset(c, 0, sizeof *c);
	c->storage = storage;
	c->grid = grid;
	c->scalars = (struct scalars){
		.step = 5, .updates = 3, .samples = (1LL << 32) + 11, .tokens = 1 << 20, .loss_scale = 1024, .good_steps = 2,
		.first_bad = -1, .lr = 3e-3, .decay = 3e-4, .grad_factor = 0.7, .correction1 = 2.5, .correction2 = 7.5};
	if (!build(c, size, variant)) {
		call_finish(c);
		return false;
	}
	call_round(c);
	return true;
}

void case_derive(struct call *c, const char *name, builder *build, const int64_t *size, unsigned variant,
		 const char *output)
{
	struct call made;
	struct bench b;
	case_build(&made, build, F64, c->grid, size, variant);
	bench_open(&b, &backend_cpu, "plain", 1);
	call_run(&b, &made, 0);
	struct arg *to = call_find(c, name), *from = call_find(&made, output);
	for (int64_t i = 0; i < to->count; i++)
		to->values[i] = from->result[i];
	bench_close(&b);
	call_finish(&made);
}

static const int64_t row_sizes[][SIZE_DIMS] = {{1, 1}, {3, 17}, {17, 3}, {2, 64}, {5, 100}, {64, 257}, {257, 33}};
static const int64_t span_sizes[][SIZE_DIMS] = {{1, 1, 1}, {2, 3, 17}, {3, 6, 3}, {1, 2, 64}, {2, 34, 100}, {4, 17, 257}};
static const int64_t table_sizes[][SIZE_DIMS] = {{1, 1, 1}, {3, 17, 5}, {64, 3, 17}, {257, 100, 64}, {100, 257, 3}};
static const int64_t product_sizes[][SIZE_DIMS] = {{1, 1, 1},   {3, 17, 5},  {17, 3, 64},   {64, 64, 64},
						   {1, 257, 3}, {100, 1, 17}, {33, 257, 100}, {65, 129, 70},
						   {1601, 2, 5}, {5, 3, 1601}, {9, 802, 18}};
static const int64_t attention_sizes[][SIZE_DIMS] = {{1, 1, 1, 1, 1}, {2, 3, 1, 2, 5},  {1, 17, 3, 1, 16}, {1, 64, 1, 1, 64},
						     {2, 33, 2, 3, 8}, {1, 100, 1, 2, 33}, {1, 70, 1, 1, 128}, {1, 260, 1, 2, 10}};
static const int64_t part_sizes[][SIZE_DIMS] = {{1, 1, 1, 1, 1}, {2, 6, 1, 2, 5}, {1, 17, 3, 1, 16}, {1, 64, 1, 1, 64},
						{2, 34, 2, 3, 8}, {1, 100, 1, 2, 33}, {1, 72, 1, 1, 128}, {1, 260, 1, 2, 10}};
static const int64_t logit_sizes[][SIZE_DIMS] = {{1, 1}, {3, 17}, {17, 3}, {2, 64}, {5, 100}, {9, 257}, {3, 1000}};
static const int64_t rank_sizes[][SIZE_DIMS] = {{1, 1}, {2, 3}, {3, 17}, {8, 64}, {4, 257}};
static const int64_t list_sizes[][SIZE_DIMS] = {{1}, {3}, {17}, {64}, {100}, {257}, {33000}};

#define SIZES(list, whole) list, sizeof list / sizeof *list, whole
const struct op_cases op_cases[] = {
	{"embedding_forward", case_embedding_forward, 1, SIZES(table_sizes, 9), {1024, 768, 8192}, 0, 0},
	{"embedding_backward", case_embedding_backward, 1, SIZES(table_sizes, 9), {1024, 768, 8192}, 0, 0},
	{"position_forward", case_position_forward, 8, SIZES(span_sizes, 4), {4, 256, 768}, POSITION_TABLE, 0},
	{"position_backward", case_position_backward, 8, SIZES(span_sizes, 4), {4, 256, 768}, POSITION_TABLE, 0},
	{"norm_forward", case_norm_forward, 4, SIZES(row_sizes, 5), {1024, 768}, 0, 0},
	{"norm_backward", case_norm_backward, 16, SIZES(row_sizes, 5), {1024, 768}, NORM_RESIDUAL, 0},
	{"residual_forward", case_residual_forward, 64, SIZES(span_sizes, 4), {4, 256, 768},
	 RESIDUAL_BIAS | RESIDUAL_DROPOUT | RESIDUAL_NORM, 0},
	{"residual_backward", case_residual_backward, 16, SIZES(span_sizes, 4), {4, 256, 768}, RESIDUAL_BIAS | RESIDUAL_DROPOUT, 0},
	{"gemm", case_gemm, GEMM_STEP * GEMM_CASES, SIZES(product_sizes, 5), {256, 768, 768},
	 GEMM_B_TRANSPOSED + GEMM_STEP * GEMM_CASE_BIAS, 2.0 * 256 * 768 * 768},
	{"gelu_forward", case_gelu_forward, 2, SIZES(row_sizes, 9), {1024, 3072}, 0, 0},
	{"swiglu_forward", case_swiglu_forward, 1, SIZES(row_sizes, 9), {1024, 2048}, 0, 0},
	{"swiglu_backward", case_swiglu_backward, 1, SIZES(row_sizes, 9), {1024, 2048}, 0, 0},
	{"rope", case_rope, 4, SIZES(attention_sizes, 8), {1, 1024, 12, 1, 64}, 0, 0},
	{"unit_rows_forward", case_unit_rows_forward, 1, SIZES(row_sizes, 9), {8192, 768}, 0, 0},
	{"unit_rows_backward", case_unit_rows_backward, 1, SIZES(row_sizes, 9), {8192, 768}, 0, 0},
	{"bias_backward", case_bias_backward, 1, SIZES(row_sizes, 5), {1024, 3072}, 0, 0},
	{"attention_forward", case_attention_forward, ATTENTION_VARIANTS, SIZES(attention_sizes, 7), {1, 256, 12, 1, 64}, 0, 2.0 * 256 * 256 * 768},
	{"attention_backward", case_attention_backward, ATTENTION_VARIANTS, SIZES(attention_sizes, 7), {1, 256, 12, 1, 64}, 0,
	 5.0 * 256 * 256 * 768},
	{"attention_part_forward", case_attention_part_forward, 2 * PART_FRESH, SIZES(part_sizes, 2), {1, 256, 12, 1, 64},
	 PART_STEP * PART_EARLIER, 2.0 * 256 * 256 * 768},
	{"attention_part_backward", case_attention_part_backward, PART_FRESH, SIZES(part_sizes, 2), {1, 256, 12, 1, 64},
	 PART_STEP * PART_EARLIER, 5.0 * 256 * 256 * 768},
	{"attention_delta", case_attention_delta, 1, SIZES(attention_sizes, 9), {1, 256, 12, 1, 64}, 0, 0},
	{"heads_copy", case_heads_copy, HEADS_CASES, SIZES(attention_sizes, 9), {1, 256, 12, 1, 64}, HEADS_KEYS, 0},
	{"loss_stats", case_loss_stats, 3, SIZES(logit_sizes, 9), {64, 50304}, LOSS_PADDED, 0},
	{"loss_combine", case_loss_combine, 2, SIZES(rank_sizes, 9), {2, 1024}, 0, 0},
	{"loss_backward", case_loss_backward, 3, SIZES(logit_sizes, 9), {64, 50304}, LOSS_PADDED, 0},
	{"loss_total", case_loss_total, 1, SIZES(row_sizes, 5), {1024}, 0, 0},
	{"add", case_add, 2, SIZES(list_sizes, 9), {786432}, 0, 0},
	{"convert", case_convert, 8, SIZES(list_sizes, 9), {786432}, 1, 0},
	{"square_sums", case_square_sums, 1, SIZES(list_sizes, 9), {786432}, 0, 0},
	{"step_verdict", case_step_verdict, VERDICT_CASES, SIZES(list_sizes, 9), {148}, 0, 0},
	{"adamw", case_adamw, 4, SIZES(list_sizes, 9), {786432}, 0, 0},
};
const int op_cases_count = sizeof op_cases / sizeof *op_cases;

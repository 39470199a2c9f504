/* formulas.h: the forward formulas of the book of ops a second time, from its text, in FP64 and as naive as can be.
 *
 * Each function gives the tensors that its op writes, from the values of a call. Backward ops are not here: finite
 * differences of the forward ops judge them. Used by test_formulas.c. */
#ifndef MTRAIN_TESTS_OPS_FORMULAS_H
#define MTRAIN_TESTS_OPS_FORMULAS_H

#include "call.h"

/* Writes to args[i].expected, which is want[i], [count] and filled with `values` where the op adds to them. */
typedef void formula(struct call *c, double *want[CALL_ARGS]);

formula formula_embedding_forward, formula_position_forward, formula_norm_forward, formula_residual_forward, formula_gemm,
	formula_gelu_forward, formula_swiglu_forward, formula_rope, formula_unit_rows_forward, formula_attention_forward, formula_attention_part_forward,
	formula_attention_delta, formula_heads_copy, formula_loss_stats, formula_loss_combine,
	formula_loss_total, formula_add, formula_convert, formula_square_sums, formula_adamw;

#endif

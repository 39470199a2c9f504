/* linear.h: y = x·Wᵀ + b, split over tensor ranks by columns or by rows.
 *
 * Column-parallel: each rank holds some outputs; the input is whole on every rank, so the input gradients are partial
 * sums. Row-parallel: each rank holds some inputs; the outputs are partial sums. A column-parallel linear followed by
 * a row-parallel one needs one all-reduce forward (behind the second) and one backward (behind the first's input
 * gradient) and nothing between: Shoeybi et al. 2019. The bias of a row-parallel linear is added once, after the sum,
 * by the op that joins the residual stream. */
#ifndef MTRAIN_MODEL_LINEAR_H
#define MTRAIN_MODEL_LINEAR_H

#include "model/env.h"

struct linear {
	const struct env *env;
	struct param *weight; /* local, as a matrix: [out, in] */
	struct param *bias;   /* NULL: none */
	int64_t out, in;      /* local sizes */
};

/* Takes "NAME.weight" and, if has_bias, "NAME.bias". out: the number of local outputs is the weight's count / in. */
void linear_build(struct linear *l, const struct env *env, struct memory *memory, int64_t in, bool has_bias,
		  const char *name);

/* Below, an input of a column-parallel linear and an output of a row-parallel one are split as the residual stream is,
 * [rows, C] (env.h): gathered before the product, reduced behind it, and the product is computed in the chunks in which
 * they move. What lies between the two linears is [N, …]. */

/* y [N, out] = x [rows, in]·Wᵀ + b. */
void linear_column_forward(const struct linear *l, struct tensor y, struct tensor x);

/* pre [N, out] = x·Wᵀ + b, y = gelu(pre), in one op. Without bias the bias is not there, not zero. */
void linear_gelu_forward(const struct linear *l, struct tensor y, struct tensor pre, struct tensor x);

/* y [rows, out] = Σ over tensor ranks of x [N, in]·Wᵀ; the bias is not added. Waits: computing may read y. */
void linear_row_forward(const struct linear *l, struct tensor y, struct tensor x);

/* Input part: dx [rows, in] = Σ over tensor ranks of dy [N, out]·W. Weight part: dW += dyᵀ·x, db += Σ dy. Of both, the
 * weight gradient runs beside the sum, and the input, where it is split, is gathered again beside the input gradient.
 * Of one part alone, what the other one writes or reads may be left out (dx; x), here and below. */
void linear_column_backward(const struct linear *l, enum backward_parts parts, struct tensor dx, struct tensor dy,
			    struct tensor x);

/* Input part: dx [N, in] = dy [rows, out]·W. Weight part: dW += dyᵀ·x. dy, where it is split, is gathered, once for
 * both. The bias gradient belongs to the op that added the bias. */
void linear_row_backward(const struct linear *l, enum backward_parts parts, struct tensor dx, struct tensor dy,
			 struct tensor x);

/* The same behind a GELU: x = gelu(pre), dpre = (dy·W) ∘ gelu′(pre). */
void linear_row_gelu_backward(const struct linear *l, enum backward_parts parts, struct tensor dpre, struct tensor dy,
			      struct tensor x, struct tensor pre);

/* The bias, or no tensor: for the op that adds it; and its gradient. */
struct tensor linear_bias(const struct linear *l);
struct tensor linear_dbias(const struct linear *l);

#endif

/* Calls of the ops that work row by row: embedding, positions, norm, residual, bias, SwiGLU, RoPE, rows of length 1. */
#include <math.h>
#include <stdlib.h>

#include "cases.h"

INVOKE(embedding_forward)
INVOKE(embedding_backward)
INVOKE(position_forward)
INVOKE(position_backward)
INVOKE(norm_forward)
INVOKE(norm_backward)
INVOKE(residual_forward)
INVOKE(residual_backward)
INVOKE(bias_backward)
INVOKE(swiglu_forward)
INVOKE(swiglu_backward)
INVOKE(rope)
INVOKE(unit_rows_forward)
INVOKE(unit_rows_backward)

/* Ids of which a third are in the table's rows first … first + rows − 1, the first two of them its ends. */
static int64_t draw_tokens(struct arg *tokens, int64_t rows)
{
	for (int64_t n = 0; n < tokens->count; n++)
		tokens->values[n] = (double)call_draw("tokens", n, 3 * rows);
	tokens->values[0] = (double)rows;
	if (tokens->count > 1)
		tokens->values[1] = (double)(2 * rows - 1);
	return rows;
}

bool case_embedding_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(embedding_forward);
	ADD(OUT, out, KIND_T, size[0], size[1]);
	op->first = draw_tokens(ADD(IN, tokens, KIND_I32, size[0]), size[2]);
	ADD(IN, table, KIND_T, size[2], size[1]);
	return true;
}

static const double *sort_keys;

static int by_token(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	double key_a = sort_keys[(int64_t)a], key_b = sort_keys[(int64_t)b];
	return key_a != key_b ? (key_a > key_b) - (key_a < key_b) : (a > b) - (a < b);
}

bool case_embedding_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(embedding_backward);
	ADD(INOUT, dtable, KIND_S, size[2], size[1]);
	ADD(IN, dout, KIND_T, size[0], size[1]);
	struct arg *tokens = ADD(IN, tokens, KIND_I32, size[0]);
	op->first = draw_tokens(tokens, size[2]);
	struct arg *order = ADD(IN, order, KIND_I32, size[0]);
	for (int64_t n = 0; n < size[0]; n++)
		order->values[n] = (double)n;
	sort_keys = tokens->values;
	qsort(order->values, (size_t)size[0], sizeof *order->values, by_token);
	return true;
}

/* Samples of odd length lie in pieces, which end inside a sample and have a gap that is no multiple of anything; those of
 * even length are two stretches of a sequence, and those of length 2 both. */
static struct dropout dropout_of(bool on, int64_t length)
{
	bool pieces = length % 2 == 1 || length == 2;
	return (struct dropout){.rate = on ? 0.3 : 0, .seed = 0x123456789abcdef0u, .site = 8 * 700 + 3,
				.span = {.sample = 3, .row = 1, .piece = pieces ? 2 : 0, .stride = pieces ? 7 : 0, .first = 2,
					 .length = length, .sequence = length + 5, .jump = length % 2 == 0 ? 3 : 0}};
}

bool case_position_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(position_forward);
	int64_t rows = size[0] * size[1];
	struct arg *x = ADD(IN, x, KIND_T, rows, size[2]);
	if (variant & POSITION_IN_PLACE)
		call_share(c, "out", &op->out, x);
	else
		ADD(OUT, out, KIND_T, rows, size[2]);
	if (variant & POSITION_TABLE)
		ADD(IN, table, KIND_T, size[1] + 5, size[2]);
	op->dropout = dropout_of(variant & POSITION_DROPOUT, size[1]);
	return true;
}

bool case_position_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(position_backward);
	int64_t rows = size[0] * size[1];
	struct arg *dout = ADD(IN, dout, KIND_T, rows, size[2]);
	if (variant & POSITION_IN_PLACE)
		call_share(c, "dx", &op->dx, dout);
	else
		ADD(OUT, dx, KIND_T, rows, size[2]);
	if (variant & POSITION_TABLE)
		ADD(INOUT, dtable, KIND_S, size[1] + 5, size[2]);
	op->dropout = dropout_of(variant & POSITION_DROPOUT, size[1]);
	return true;
}

/* Rows with a mean that is large against their spread, as residual streams have. */
static void shift(struct arg *x)
{
	for (int64_t i = 0; i < x->count; i++)
		x->values[i] = x->values[i] * 0.5 + 2;
}

bool case_norm_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(norm_forward);
	op->kind = variant & NORM_IS_RMS ? NORM_RMS : NORM_LAYER;
	op->epsilon = 1e-5;
	ADD(OUT, out, KIND_T, size[0], size[1]);
	if (op->kind == NORM_LAYER)
		ADD(OUT, mean, KIND_S, size[0]);
	ADD(OUT, rstd, KIND_S, size[0]);
	shift(ADD(IN, x, KIND_T, size[0], size[1]));
	shift(ADD(IN, weight, KIND_T, size[1]));
	if (!(variant & NORM_NO_BIAS))
		ADD(IN, bias, KIND_T, size[1]);
	return true;
}

bool case_norm_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(norm_backward);
	unsigned forward = variant & (NORM_IS_RMS | NORM_NO_BIAS);
	op->kind = variant & NORM_IS_RMS ? NORM_RMS : NORM_LAYER;
	if (variant & NORM_IN_PLACE && !(variant & NORM_RESIDUAL))
		return false;
	ADD(INOUT, dweight, KIND_S, size[1]);
	if (!(variant & NORM_NO_BIAS))
		ADD(INOUT, dbias, KIND_S, size[1]);
	ADD(IN, dout, KIND_T, size[0], size[1]);
	struct arg *dresidual = variant & NORM_RESIDUAL ? ADD(IN, dresidual, KIND_T, size[0], size[1]) : NULL;
	if (variant & NORM_IN_PLACE)
		call_share(c, "dx", &op->dx, dresidual);
	else
		ADD(OUT, dx, KIND_T, size[0], size[1]);
	shift(ADD(IN, x, KIND_T, size[0], size[1]));
	shift(ADD(IN, weight, KIND_T, size[1]));
	if (op->kind == NORM_LAYER) {
		ADD(IN, mean, KIND_S, size[0]);
		case_derive(c, "mean", case_norm_forward, size, forward, "mean");
	}
	ADD(IN, rstd, KIND_S, size[0]);
	case_derive(c, "rstd", case_norm_forward, size, forward, "rstd");
	return true;
}

bool case_residual_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(residual_forward);
	int64_t rows = size[0] * size[1], width = size[2];
	bool norm = variant & RESIDUAL_NORM, rms = variant & RESIDUAL_RMS;
	if ((rms && !norm) || (variant & RESIDUAL_INTO_RESIDUAL && variant & RESIDUAL_INTO_X))
		return false;
	struct arg *residual = ADD(IN, residual, KIND_T, rows, width);
	struct arg *x = ADD(IN, x, KIND_T, rows, width);
	if (variant & RESIDUAL_INTO_RESIDUAL)
		call_share(c, "sum", &op->sum, residual);
	else if (variant & RESIDUAL_INTO_X)
		call_share(c, "sum", &op->sum, x);
	else
		ADD(OUT, sum, KIND_T, rows, width);
	if (variant & RESIDUAL_BIAS)
		ADD(IN, bias, KIND_T, width);
	op->dropout = dropout_of(variant & RESIDUAL_DROPOUT, size[1]);
	if (!norm)
		return true;
	op->kind = rms ? NORM_RMS : NORM_LAYER;
	op->epsilon = 1e-5;
	ADD(OUT, out, KIND_T, rows, width)->late = true;
	if (!rms)
		ADD(OUT, mean, KIND_S, rows)->late = true;
	ADD(OUT, rstd, KIND_S, rows)->late = true;
	shift(ADD(IN, norm_weight, KIND_T, width));
	if (!rms)
		ADD(IN, norm_bias, KIND_T, width);
	return true;
}

bool case_residual_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(residual_backward);
	int64_t rows = size[0] * size[1], width = size[2];
	bool no_dx = variant & RESIDUAL_NO_DX;
	if (no_dx && variant & (RESIDUAL_DROPOUT | RESIDUAL_IN_PLACE))
		return false;
	struct arg *dsum = ADD(IN, dsum, KIND_T, rows, width);
	if (variant & RESIDUAL_IN_PLACE)
		call_share(c, "dx", &op->dx, dsum);
	else if (!no_dx)
		ADD(OUT, dx, KIND_T, rows, width);
	if (variant & RESIDUAL_BIAS)
		ADD(INOUT, dbias, KIND_S, width);
	op->dropout = dropout_of(variant & RESIDUAL_DROPOUT, size[1]);
	return true;
}

bool case_bias_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(bias_backward);
	ADD(INOUT, dbias, KIND_S, size[1]);
	ADD(IN, dout, KIND_T, size[0], size[1]);
	return true;
}

bool case_swiglu_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(swiglu_forward);
	ADD(OUT, out, KIND_T, size[0], size[1]);
	ADD(IN, x, KIND_T, size[0], 2 * size[1]);
	return true;
}

bool case_swiglu_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(swiglu_backward);
	ADD(OUT, dx, KIND_T, size[0], 2 * size[1]);
	ADD(IN, dout, KIND_T, size[0], size[1]);
	ADD(IN, x, KIND_T, size[0], 2 * size[1]);
	return true;
}

/* As attention's sizes: B, T, KV, G, D. */
bool case_rope(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(rope);
	int64_t width = (variant & ROPE_PART ? size[4] / 2 : size[4]) / 2 * 2;
	if (width == 0)
		return false;
	ADD(INOUT, qkv, KIND_T, size[0] * size[1], size[2], size[3] + 2, size[4]);
	op->span = dropout_of(false, size[1]).span;
	op->inverse = variant & ROPE_INVERSE;
	struct arg *table = ADD(IN, table, KIND_S, op->span.sequence, width);
	for (int64_t i = 0; i < table->count; i++) {
		double angle = (double)(i / width) * pow(100, -(double)(i % (width / 2)) * 2 / (double)width);
		table->values[i] = i % width < width / 2 ? cos(angle) : sin(angle);
	}
	return true;
}

/* The last of several rows is zero, as a padded row of a vocabulary is. */
static void pad(struct arg *x, int64_t rows, int64_t width)
{
	for (int64_t c = 0; rows > 1 && c < width; c++)
		x->values[(rows - 1) * width + c] = 0;
}

bool case_unit_rows_forward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(unit_rows_forward);
	ADD(OUT, out, KIND_T, size[0], size[1]);
	ADD(OUT, scale, KIND_S, size[0]);
	pad(ADD(IN, x, KIND_T, size[0], size[1]), size[0], size[1]);
	return true;
}

bool case_unit_rows_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(unit_rows_backward);
	ADD(INOUT, dx, KIND_S, size[0], size[1]);
	pad(ADD(IN, dout, KIND_S, size[0], size[1]), size[0], size[1]);
	pad(ADD(IN, x, KIND_T, size[0], size[1]), size[0], size[1]);
	ADD(IN, scale, KIND_S, size[0]);
	case_derive(c, "scale", case_unit_rows_forward, size, variant, "scale");
	return true;
}

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/dropout.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/norm.h"
#include "dev/cpu/parallel.h"

enum {
	ROWS = 16,           /* of a part that goes by rows */
	COLUMNS = 4 * LANES, /* of one that goes by columns */
};

struct forward {
	const struct op_residual_forward *op;
	struct op_norm_forward norm; /* of the sum */
	int64_t samples;
};

INLINE void residual_forward(enum dtype t, const struct forward *w, int64_t part)
{
	const struct op_residual_forward *a = w->op;
	const int64_t width = a->sum.shape[1];
	const bool bias = tensor_given(a->bias), norm = tensor_given(a->norm_weight);
	struct drop d;
	drop_init(&d, &a->dropout);
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->sum.shape[0]); n++) {
		uint64_t e = drop_row(&d, &a->dropout.span, w->samples, n, width);
		const void *x = row_at(t, a->x.data, n * width), *residual = row_at(t, a->residual.data, n * width);
		void *sum = row_at(t, a->sum.data, n * width);
		for (int64_t c = 0; c < width; c += LANES) {
			vf v = get_to(t, x, c, width);
			if (bias)
				v += get_to(t, a->bias.data, c, width);
			v = drop_in_row(&d, e, c, width, v);
			put_to(t, sum, c, get_to(t, residual, c, width) + v, width);
		}
		if (norm)
			norm_row(t, &w->norm, n);
	}
}

static void residual_forward_part(void *context, int64_t part, int thread)
{
	const struct forward *w = context;
	BY_TYPE(w->op->sum.dtype, residual_forward, w, part);
}

void FAST(residual_forward)(struct device *dev, const struct op_residual_forward *a)
{
	if (a->sum.dtype == F64) {
		ops_plain.residual_forward(dev, a);
		return;
	}
	struct forward w = {
		.op = a,
		.norm = {.out = a->out, .mean = a->mean, .rstd = a->rstd, .x = a->sum, .weight = a->norm_weight,
			 .bias = a->norm_bias, .kind = a->kind, .epsilon = a->epsilon},
		.samples = dev->scalars->samples,
	};
	parallel(dev, ceil_div(a->sum.shape[0], ROWS), residual_forward_part, &w);
}

struct backward {
	const struct op_residual_backward *op;
	int64_t samples;
};

/* A part is some columns of all rows, so that a sum over rows has one thread. */
INLINE void residual_backward(enum dtype t, const struct backward *w, int64_t part)
{
	const struct op_residual_backward *a = w->op;
	const int64_t rows = a->dsum.shape[0], width = a->dsum.shape[1];
	const int64_t begin = part * COLUMNS, columns = least(COLUMNS, width - begin);
	const bool write = tensor_given(a->dx);
	vf sums[COLUMNS / LANES] = {{0}};
	struct drop d;
	drop_init(&d, &a->dropout);
	for (int64_t n = 0; n < rows; n++) {
		uint64_t e = drop_row(&d, &a->dropout.span, w->samples, n, width) + (uint64_t)begin;
		const void *dsum = row_at(t, a->dsum.data, n * width + begin);
		void *dx = write ? row_at(t, a->dx.data, n * width + begin) : NULL;
#pragma GCC unroll 4
		for (int64_t i = 0; i < COLUMNS / LANES; i++) {
			int64_t c = i * LANES;
			if (c >= columns)
				break;
			vf v = drop_in_row(&d, e, c, columns, get_to(t, dsum, c, columns));
			if (write)
				put_to(t, dx, c, v, columns);
			sums[i] += v;
		}
	}
	if (!tensor_given(a->dbias))
		return;
	float *dbias = (float *)a->dbias.data + begin;
	for (int64_t i = 0, c = 0; c < columns; i++, c += LANES)
		put_to(F32, dbias, c, get_to(F32, dbias, c, columns) + sums[i], columns);
}

static void residual_backward_part(void *context, int64_t part, int thread)
{
	const struct backward *w = context;
	BY_TYPE(w->op->dsum.dtype, residual_backward, w, part);
}

void FAST(residual_backward)(struct device *dev, const struct op_residual_backward *a)
{
	if (a->dsum.dtype == F64) {
		ops_plain.residual_backward(dev, a);
		return;
	}
	struct backward w = {a, dev->scalars->samples};
	parallel(dev, ceil_div(a->dsum.shape[1], COLUMNS), residual_backward_part, &w);
}

#include "dev/cpu/fast/norm.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/parallel.h"

enum {
	ROWS = 16,           /* of a part that goes by rows */
	COLUMNS = 4 * LANES, /* of one that goes by columns */
};

INLINE void norm_forward(enum dtype t, const struct op_norm_forward *a, int64_t part)
{
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->x.shape[0]); n++)
		norm_row(t, a, n);
}

static void norm_forward_part(void *context, int64_t part, int thread)
{
	const struct op_norm_forward *a = context;
	BY_TYPE(a->x.dtype, norm_forward, a, part);
}

void FAST(norm_forward)(struct device *dev, const struct op_norm_forward *a)
{
	if (a->x.dtype == F64) {
		ops_plain.norm_forward(dev, a);
		return;
	}
	struct op_norm_forward copy = *a;
	parallel(dev, ceil_div(a->x.shape[0], ROWS), norm_forward_part, &copy);
}

static float mean_of(const struct op_norm_backward *a, int64_t n)
{
	return a->kind == NORM_LAYER ? ((const float *)a->mean.data)[n] : 0;
}

INLINE void norm_backward_rows(enum dtype t, const struct op_norm_backward *a, int64_t part)
{
	const int64_t width = a->x.shape[1];
	const bool layer = a->kind == NORM_LAYER, residual = tensor_given(a->dresidual);
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->x.shape[0]); n++) {
		const void *x = row_at(t, a->x.data, n * width), *dout = row_at(t, a->dout.data, n * width);
		const void *dresidual = residual ? row_at(t, a->dresidual.data, n * width) : NULL;
		void *dx = row_at(t, a->dx.data, n * width);
		const float mean = mean_of(a, n), rstd = ((const float *)a->rstd.data)[n];
		vf sum_g = vf_set(0), sum_gx = vf_set(0);
		for (int64_t c = 0; c < width; c += LANES) {
			vf g = get_to(t, dout, c, width) * get_to(t, a->weight.data, c, width);
			sum_g += g;
			sum_gx = vf_fma(g, (get_to(t, x, c, width) - mean) * rstd, sum_gx);
		}
		const float mean_g = layer ? vf_sum(sum_g) / (float)width : 0, mean_gx = vf_sum(sum_gx) / (float)width;
		for (int64_t c = 0; c < width; c += LANES) {
			vf g = get_to(t, dout, c, width) * get_to(t, a->weight.data, c, width);
			vf xhat = (get_to(t, x, c, width) - mean) * rstd;
			vf v = (g - mean_g - xhat * mean_gx) * rstd;
			if (residual)
				v += get_to(t, dresidual, c, width);
			put_to(t, dx, c, v, width);
		}
	}
}

/* The sums over rows, for some columns. dx may lie where dresidual does, but not where x or dout do. */
INLINE void norm_backward_columns(enum dtype t, const struct op_norm_backward *a, int64_t part)
{
	const int64_t rows = a->x.shape[0], width = a->x.shape[1];
	const int64_t begin = part * COLUMNS, end = least(begin + COLUMNS, width);
	vf dweight[COLUMNS / LANES] = {{0}}, dbias[COLUMNS / LANES] = {{0}};
	for (int64_t n = 0; n < rows; n++) {
		const void *x = row_at(t, a->x.data, n * width), *dout = row_at(t, a->dout.data, n * width);
		const float mean = mean_of(a, n), rstd = ((const float *)a->rstd.data)[n];
#pragma GCC unroll 4
		for (int64_t i = 0; i < COLUMNS / LANES; i++) {
			int64_t c = begin + i * LANES;
			if (c >= end)
				break;
			vf d = get_to(t, dout, c, end);
			dweight[i] = vf_fma(d, (get_to(t, x, c, end) - mean) * rstd, dweight[i]);
			dbias[i] += d;
		}
	}
	for (int64_t i = 0, c = begin; c < end; i++, c += LANES) {
		put_to(F32, a->dweight.data, c, get_to(F32, a->dweight.data, c, end) + dweight[i], end);
		if (tensor_given(a->dbias))
			put_to(F32, a->dbias.data, c, get_to(F32, a->dbias.data, c, end) + dbias[i], end);
	}
}

static void norm_backward_part(void *context, int64_t part, int thread)
{
	const struct op_norm_backward *a = context;
	const int64_t parts = ceil_div(a->x.shape[0], ROWS);
	if (part < parts)
		BY_TYPE(a->x.dtype, norm_backward_rows, a, part);
	else
		BY_TYPE(a->x.dtype, norm_backward_columns, a, part - parts);
}

void FAST(norm_backward)(struct device *dev, const struct op_norm_backward *a)
{
	if (a->x.dtype == F64) {
		ops_plain.norm_backward(dev, a);
		return;
	}
	struct op_norm_backward copy = *a;
	parallel(dev, ceil_div(a->x.shape[0], ROWS) + ceil_div(a->x.shape[1], COLUMNS), norm_backward_part, &copy);
}

INLINE void bias_backward(enum dtype t, const struct op_bias_backward *a, int64_t part)
{
	const int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	const int64_t begin = part * COLUMNS, end = least(begin + COLUMNS, width);
	vf sums[COLUMNS / LANES] = {{0}};
	for (int64_t n = 0; n < rows; n++) {
		const void *dout = row_at(t, a->dout.data, n * width);
#pragma GCC unroll 4
		for (int64_t i = 0; i < COLUMNS / LANES; i++)
			if (begin + i * LANES < end)
				sums[i] += get_to(t, dout, begin + i * LANES, end);
	}
	for (int64_t i = 0, c = begin; c < end; i++, c += LANES)
		put_to(F32, a->dbias.data, c, get_to(F32, a->dbias.data, c, end) + sums[i], end);
}

static void bias_backward_part(void *context, int64_t part, int thread)
{
	const struct op_bias_backward *a = context;
	BY_TYPE(a->dout.dtype, bias_backward, a, part);
}

void FAST(bias_backward)(struct device *dev, const struct op_bias_backward *a)
{
	if (a->dout.dtype == F64) {
		ops_plain.bias_backward(dev, a);
		return;
	}
	struct op_bias_backward copy = *a;
	parallel(dev, ceil_div(a->dout.shape[1], COLUMNS), bias_backward_part, &copy);
}

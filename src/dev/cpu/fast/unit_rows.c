#include <math.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum { ROWS = 16 }; /* of a part */

INLINE void unit_rows_forward(enum dtype t, const struct op_unit_rows_forward *a, int64_t part)
{
	const int64_t width = a->x.shape[1];
	for (int64_t v = part * ROWS; v < least((part + 1) * ROWS, a->x.shape[0]); v++) {
		const void *x = row_at(t, a->x.data, v * width);
		void *out = row_at(t, a->out.data, v * width);
		vf squares = vf_set(0);
		for (int64_t c = 0; c < width; c += LANES) {
			vf e = get_to(t, x, c, width);
			squares = vf_fma(e, e, squares);
		}
		const float length = sqrtf(vf_sum(squares));
		const float scale = 1.0f / (length <= 1e-12f ? 1e-12f : length); /* a NaN stays one */
		((float *)a->scale.data)[v] = scale;
		for (int64_t c = 0; c < width; c += LANES)
			put_to(t, out, c, get_to(t, x, c, width) * scale, width);
	}
}

static void unit_rows_forward_part(void *context, int64_t part, int thread)
{
	const struct op_unit_rows_forward *a = context;
	BY_TYPE(a->x.dtype, unit_rows_forward, a, part);
}

void FAST(unit_rows_forward)(struct device *dev, const struct op_unit_rows_forward *a)
{
	if (a->x.dtype == F64) {
		ops_plain.unit_rows_forward(dev, a);
		return;
	}
	struct op_unit_rows_forward copy = *a;
	parallel(dev, ceil_div(a->x.shape[0], ROWS), unit_rows_forward_part, &copy);
}

INLINE void unit_rows_backward(enum dtype t, const struct op_unit_rows_backward *a, int64_t part)
{
	const int64_t width = a->x.shape[1];
	for (int64_t v = part * ROWS; v < least((part + 1) * ROWS, a->x.shape[0]); v++) {
		const void *x = row_at(t, a->x.data, v * width);
		const float *dout = (const float *)a->dout.data + v * width, scale = ((const float *)a->scale.data)[v];
		float *dx = (float *)a->dx.data + v * width;
		vf along = vf_set(0);
		for (int64_t c = 0; c < width; c += LANES)
			along = vf_fma(get_to(t, x, c, width) * scale, get_to(F32, dout, c, width), along);
		const float sum = vf_sum(along);
		for (int64_t c = 0; c < width; c += LANES) {
			vf across = get_to(F32, dout, c, width) - get_to(t, x, c, width) * scale * sum;
			put_to(F32, dx, c, get_to(F32, dx, c, width) + across * scale, width);
		}
	}
}

static void unit_rows_backward_part(void *context, int64_t part, int thread)
{
	const struct op_unit_rows_backward *a = context;
	BY_TYPE(a->x.dtype, unit_rows_backward, a, part);
}

void FAST(unit_rows_backward)(struct device *dev, const struct op_unit_rows_backward *a)
{
	if (a->x.dtype == F64) {
		ops_plain.unit_rows_backward(dev, a);
		return;
	}
	struct op_unit_rows_backward copy = *a;
	parallel(dev, ceil_div(a->x.shape[0], ROWS), unit_rows_backward_part, &copy);
}

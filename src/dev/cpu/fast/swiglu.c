#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum { ROWS = 8 }; /* of a part */

INLINE vf sigmoid(vf x)
{
	return 1.0f / (1.0f + vf_exp(-x));
}

INLINE void swiglu_forward(enum dtype t, const struct op_swiglu_forward *a, int64_t part)
{
	const int64_t width = a->out.shape[1];
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->out.shape[0]); n++) {
		const void *gates = row_at(t, a->x.data, 2 * n * width), *ups = row_at(t, gates, width);
		void *out = row_at(t, a->out.data, n * width);
		for (int64_t c = 0; c < width; c += LANES) {
			vf gate = get_to(t, gates, c, width), up = get_to(t, ups, c, width);
			put_to(t, out, c, gate * sigmoid(gate) * up, width);
		}
	}
}

static void swiglu_forward_part(void *context, int64_t part, int thread)
{
	const struct op_swiglu_forward *a = context;
	BY_TYPE(a->out.dtype, swiglu_forward, a, part);
}

void FAST(swiglu_forward)(struct device *dev, const struct op_swiglu_forward *a)
{
	if (a->out.dtype == F64) {
		ops_plain.swiglu_forward(dev, a);
		return;
	}
	struct op_swiglu_forward copy = *a;
	parallel(dev, ceil_div(a->out.shape[0], ROWS), swiglu_forward_part, &copy);
}

INLINE void swiglu_backward(enum dtype t, const struct op_swiglu_backward *a, int64_t part)
{
	const int64_t width = a->dout.shape[1];
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->dout.shape[0]); n++) {
		const void *gates = row_at(t, a->x.data, 2 * n * width), *ups = row_at(t, gates, width);
		const void *douts = row_at(t, a->dout.data, n * width);
		void *dgates = row_at(t, a->dx.data, 2 * n * width), *dups = row_at(t, dgates, width);
		for (int64_t c = 0; c < width; c += LANES) {
			vf gate = get_to(t, gates, c, width), up = get_to(t, ups, c, width);
			vf dout = get_to(t, douts, c, width), s = sigmoid(gate);
			put_to(t, dgates, c, dout * up * s * vf_fma(gate, 1.0f - s, vf_set(1.0f)), width);
			put_to(t, dups, c, dout * gate * s, width);
		}
	}
}

static void swiglu_backward_part(void *context, int64_t part, int thread)
{
	const struct op_swiglu_backward *a = context;
	BY_TYPE(a->dout.dtype, swiglu_backward, a, part);
}

void FAST(swiglu_backward)(struct device *dev, const struct op_swiglu_backward *a)
{
	if (a->dout.dtype == F64) {
		ops_plain.swiglu_backward(dev, a);
		return;
	}
	struct op_swiglu_backward copy = *a;
	parallel(dev, ceil_div(a->dout.shape[0], ROWS), swiglu_backward_part, &copy);
}

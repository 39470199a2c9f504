#include "dev/cpu/plain/plain.h"

static real sigmoid(real x)
{
	return 1 / (1 + MATH(exp)(-x));
}

void PLAIN(swiglu_forward)(struct device *dev, const struct op_swiglu_forward *a)
{
	int64_t width = a->out.shape[1];

	for (int64_t n = 0; n < a->out.shape[0]; n++)
		for (int64_t c = 0; c < width; c++) {
			real gate = get(a->x, 2 * n * width + c), up = get(a->x, (2 * n + 1) * width + c);
			put(a->out, n * width + c, gate * sigmoid(gate) * up);
		}
}

void PLAIN(swiglu_backward)(struct device *dev, const struct op_swiglu_backward *a)
{
	int64_t width = a->dout.shape[1];

	for (int64_t n = 0; n < a->dout.shape[0]; n++)
		for (int64_t c = 0; c < width; c++) {
			int64_t gate_at = 2 * n * width + c, up_at = gate_at + width;
			real gate = get(a->x, gate_at), up = get(a->x, up_at), s = sigmoid(gate);
			real dout = get(a->dout, n * width + c);
			put(a->dx, gate_at, dout * up * s * (1 + gate * (1 - s)));
			put(a->dx, up_at, dout * gate * s);
		}
}

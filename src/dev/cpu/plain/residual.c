#include "dev/cpu/plain/plain.h"

void PLAIN(residual_forward)(struct device *dev, const struct op_residual_forward *a)
{
	int64_t width = a->sum.shape[1];

	for (int64_t n = 0; n < a->sum.shape[0]; n++)
		for (int64_t c = 0; c < width; c++) {
			real x = get(a->x, n * width + c);
			if (tensor_given(a->bias))
				x += get(a->bias, c);
			x *= dropout_in_row(dev, &a->dropout, n, width, c);
			put(a->sum, n * width + c, get(a->residual, n * width + c) + x);
		}
	if (tensor_given(a->norm_weight))
		PLAIN(norm_forward)(dev, &(struct op_norm_forward){
			.out = a->out, .mean = a->mean, .rstd = a->rstd, .x = a->sum,
			.weight = a->norm_weight, .bias = a->norm_bias, .kind = a->kind, .epsilon = a->epsilon});
}

void PLAIN(residual_backward)(struct device *dev, const struct op_residual_backward *a)
{
	int64_t width = a->dsum.shape[1];

	for (int64_t n = 0; n < a->dsum.shape[0]; n++)
		for (int64_t c = 0; c < width; c++) {
			real dx = get(a->dsum, n * width + c) * dropout_in_row(dev, &a->dropout, n, width, c);
			if (tensor_given(a->dx))
				put(a->dx, n * width + c, dx);
			if (tensor_given(a->dbias))
				add_to(a->dbias, c, dx);
		}
}

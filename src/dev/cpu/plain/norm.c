#include "dev/cpu/plain/plain.h"

void PLAIN(norm_forward)(struct device *dev, const struct op_norm_forward *a)
{
	int64_t width = a->x.shape[1];

	for (int64_t n = 0; n < a->x.shape[0]; n++) {
		real mean = 0, squares = 0;
		if (a->kind == NORM_LAYER) {
			for (int64_t c = 0; c < width; c++)
				mean += get(a->x, n * width + c);
			mean /= (real)width;
			put(a->mean, n, mean);
		}
		for (int64_t c = 0; c < width; c++) {
			real d = get(a->x, n * width + c) - mean;
			squares += d * d;
		}
		real rstd = 1 / MATH(sqrt)(squares / (real)width + (real)a->epsilon);
		put(a->rstd, n, rstd);
		for (int64_t c = 0; c < width; c++) {
			real y = (get(a->x, n * width + c) - mean) * rstd * get(a->weight, c);
			if (tensor_given(a->bias))
				y += get(a->bias, c);
			put(a->out, n * width + c, y);
		}
	}
}

void PLAIN(norm_backward)(struct device *dev, const struct op_norm_backward *a)
{
	int64_t width = a->x.shape[1];

	for (int64_t n = 0; n < a->x.shape[0]; n++) {
		bool layer = a->kind == NORM_LAYER;
		real mean = layer ? get(a->mean, n) : 0, rstd = get(a->rstd, n);
		real sum_g = 0, sum_gx = 0;
		for (int64_t c = 0; c < width; c++) {
			real dout = get(a->dout, n * width + c);
			real xhat = (get(a->x, n * width + c) - mean) * rstd;
			real g = dout * get(a->weight, c);
			sum_g += g;
			sum_gx += g * xhat;
			add_to(a->dweight, c, dout * xhat);
			if (tensor_given(a->dbias))
				add_to(a->dbias, c, dout);
		}
		real mean_g = layer ? sum_g / (real)width : 0, mean_gx = sum_gx / (real)width;
		for (int64_t c = 0; c < width; c++) {
			real xhat = (get(a->x, n * width + c) - mean) * rstd;
			real g = get(a->dout, n * width + c) * get(a->weight, c);
			real dx = rstd * (g - mean_g - xhat * mean_gx);
			if (tensor_given(a->dresidual))
				dx += get(a->dresidual, n * width + c);
			put(a->dx, n * width + c, dx);
		}
	}
}

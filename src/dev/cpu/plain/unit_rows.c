#include "dev/cpu/plain/plain.h"

void PLAIN(unit_rows_forward)(struct device *dev, const struct op_unit_rows_forward *a)
{
	int64_t width = a->x.shape[1];

	for (int64_t v = 0; v < a->x.shape[0]; v++) {
		real squares = 0;
		for (int64_t c = 0; c < width; c++)
			squares += get(a->x, v * width + c) * get(a->x, v * width + c);
		real length = MATH(sqrt)(squares), scale = 1 / (length <= (real)1e-12 ? (real)1e-12 : length); /* a NaN stays one */
		put(a->scale, v, scale);
		for (int64_t c = 0; c < width; c++)
			put(a->out, v * width + c, get(a->x, v * width + c) * scale);
	}
}

void PLAIN(unit_rows_backward)(struct device *dev, const struct op_unit_rows_backward *a)
{
	int64_t width = a->x.shape[1];

	for (int64_t v = 0; v < a->x.shape[0]; v++) {
		real scale = get(a->scale, v), along = 0;
		for (int64_t c = 0; c < width; c++)
			along += get(a->x, v * width + c) * scale * get(a->dout, v * width + c);
		for (int64_t c = 0; c < width; c++) {
			real unit = get(a->x, v * width + c) * scale;
			add_to(a->dx, v * width + c, scale * (get(a->dout, v * width + c) - unit * along));
		}
	}
}

#include "dev/cpu/plain/plain.h"

void PLAIN(embedding_forward)(struct device *dev, const struct op_embedding_forward *a)
{
	int64_t rows = a->table.shape[0], width = a->out.shape[1];

	for (int64_t n = 0; n < a->out.shape[0]; n++) {
		int64_t v = token(a->tokens, n) - a->first;
		bool here = v >= 0 && v < rows;
		for (int64_t c = 0; c < width; c++)
			put(a->out, n * width + c, here ? get(a->table, v * width + c) : 0);
	}
}

/* Rows in ascending order need no sorting here; `order` serves those who give one table row to one thread. */
void PLAIN(embedding_backward)(struct device *dev, const struct op_embedding_backward *a)
{
	int64_t rows = a->dtable.shape[0], width = a->dout.shape[1];

	for (int64_t n = 0; n < a->dout.shape[0]; n++) {
		int64_t v = token(a->tokens, n) - a->first;
		if (v < 0 || v >= rows)
			continue;
		for (int64_t c = 0; c < width; c++)
			add_to(a->dtable, v * width + c, get(a->dout, n * width + c));
	}
}

void PLAIN(position_forward)(struct device *dev, const struct op_position_forward *a)
{
	int64_t width = a->out.shape[1];

	for (int64_t n = 0; n < a->out.shape[0]; n++)
		for (int64_t c = 0; c < width; c++) {
			real x = get(a->x, n * width + c);
			if (tensor_given(a->table))
				x += get(a->table, span_token(&a->dropout.span, n) * width + c);
			put(a->out, n * width + c, x * dropout_in_row(dev, &a->dropout, n, width, c));
		}
}

void PLAIN(position_backward)(struct device *dev, const struct op_position_backward *a)
{
	int64_t width = a->dx.shape[1];

	for (int64_t n = 0; n < a->dx.shape[0]; n++)
		for (int64_t c = 0; c < width; c++) {
			real dx = get(a->dout, n * width + c) * dropout_in_row(dev, &a->dropout, n, width, c);
			put(a->dx, n * width + c, dx);
			if (tensor_given(a->dtable))
				add_to(a->dtable, span_token(&a->dropout.span, n) * width + c, dx);
		}
}

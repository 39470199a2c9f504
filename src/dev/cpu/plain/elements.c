#include "dev/cpu/plain/plain.h"

void PLAIN(add)(struct device *dev, const struct op_add *a)
{
	for (int64_t i = 0; i < tensor_count(a->y); i++)
		put(a->y, i, get(a->x, i) + get(a->y, i));
}

void PLAIN(convert)(struct device *dev, const struct op_convert *a)
{
	for (int64_t i = 0; i < tensor_count(a->to); i++)
		put(a->to, i, get(a->from, i));
}

void PLAIN(heads_copy)(struct device *dev, const struct op_heads_copy *a)
{
	int64_t to = a->to.shape[2] * a->to.shape[3], from = a->from.shape[2] * a->from.shape[3], size = a->to.shape[3];

	for (int64_t g = 0; g < a->to.shape[0] * a->to.shape[1]; g++)
		for (int64_t i = 0; i < a->count * size; i++)
			put(a->to, g * to + a->to_first * size + i, get(a->from, g * from + a->from_first * size + i));
}

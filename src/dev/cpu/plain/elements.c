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

#include "dev/cpu/plain/plain.h"

void PLAIN(rope)(struct device *dev, const struct op_rope *a)
{
	int64_t groups = a->qkv.shape[1], parts = a->qkv.shape[2], size = a->qkv.shape[3];
	int64_t width = a->table.shape[1], half = width / 2;

	for (int64_t n = 0; n < a->qkv.shape[0]; n++) {
		int64_t row = span_token(&a->span, n) * width;
		for (int64_t head = 0; head < groups * parts; head++) {
			int64_t at = (n * groups * parts + head) * size;
			if (head % parts == parts - 1)
				continue; /* a value */
			for (int64_t i = 0; i < half; i++) {
				real c = get(a->table, row + i), s = get(a->table, row + half + i);
				real x = get(a->qkv, at + i), y = get(a->qkv, at + half + i);
				if (a->inverse)
					s = -s;
				put(a->qkv, at + i, x * c - y * s);
				put(a->qkv, at + half + i, y * c + x * s);
			}
		}
	}
}

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum { ROWS = 8 }; /* of a part */

/* One head: its first and second half of rotated elements against cosines and sines. */
INLINE void rotate(enum dtype t, void *low, void *high, const float *cosines, const float *sines, int64_t half, float sign)
{
	for (int64_t i = 0; i < half; i += LANES) {
		vf c = get_to(F32, cosines, i, half), s = get_to(F32, sines, i, half) * sign;
		vf x = get_to(t, low, i, half), y = get_to(t, high, i, half);
		put_to(t, low, i, x * c - y * s, half);
		put_to(t, high, i, y * c + x * s, half);
	}
}

INLINE void rope(enum dtype t, const struct op_rope *a, int64_t part)
{
	const int64_t parts = a->qkv.shape[2], heads = a->qkv.shape[1] * parts, size = a->qkv.shape[3];
	const int64_t width = a->table.shape[1], half = width / 2;
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->qkv.shape[0]); n++) {
		const float *cosines = (const float *)a->table.data + span_token(&a->span, n) * width;
		for (int64_t head = 0; head < heads; head++) {
			void *low = row_at(t, a->qkv.data, (n * heads + head) * size);
			if (head % parts != parts - 1) /* else a value */
				rotate(t, low, row_at(t, low, half), cosines, cosines + half, half, a->inverse ? -1.0f : 1.0f);
		}
	}
}

static void rope_part(void *context, int64_t part, int thread)
{
	const struct op_rope *a = context;
	BY_TYPE(a->qkv.dtype, rope, a, part);
}

void FAST(rope)(struct device *dev, const struct op_rope *a)
{
	if (a->qkv.dtype == F64) {
		ops_plain.rope(dev, a);
		return;
	}
	struct op_rope copy = *a;
	parallel(dev, ceil_div(a->qkv.shape[0], ROWS), rope_part, &copy);
}

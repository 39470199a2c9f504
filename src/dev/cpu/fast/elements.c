#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum { CHUNK = 1 << 15 };

INLINE void add(enum dtype t, const struct op_add *a, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i += LANES)
		put_to(t, a->y.data, i, get_to(t, a->x.data, i, end) + get_to(t, a->y.data, i, end), end);
}

static void add_part(void *context, int64_t part, int thread)
{
	const struct op_add *a = context;
	BY_TYPE(a->y.dtype, add, a, part * CHUNK, least((part + 1) * CHUNK, tensor_count(a->y)));
}

void FAST(add)(struct device *dev, const struct op_add *a)
{
	if (a->y.dtype == F64) {
		ops_plain.add(dev, a);
		return;
	}
	struct op_add copy = *a;
	parallel(dev, ceil_div(tensor_count(a->y), CHUNK), add_part, &copy);
}

INLINE void convert(enum dtype to, enum dtype from, const struct op_convert *a, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i += LANES)
		put_to(to, a->to.data, i, get_to(from, a->from.data, i, end), end);
}

INLINE void convert_to(enum dtype to, const struct op_convert *a, int64_t begin, int64_t end)
{
	switch (a->from.dtype) {
	case F32:
		convert(to, F32, a, begin, end);
		break;
	case F16:
		convert(to, F16, a, begin, end);
		break;
	default:
		convert(to, BF16, a, begin, end);
		break;
	}
}

static void convert_part(void *context, int64_t part, int thread)
{
	const struct op_convert *a = context;
	BY_TYPE(a->to.dtype, convert_to, a, part * CHUNK, least((part + 1) * CHUNK, tensor_count(a->to)));
}

void FAST(convert)(struct device *dev, const struct op_convert *a)
{
	if (a->to.dtype == F64 || a->from.dtype == F64) {
		ops_plain.convert(dev, a);
		return;
	}
	struct op_convert copy = *a;
	parallel(dev, ceil_div(tensor_count(a->to), CHUNK), convert_part, &copy);
}

INLINE void gelu_forward(enum dtype t, const struct op_gelu_forward *a, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i += LANES)
		put_to(t, a->out.data, i, vf_gelu(a->gelu, get_to(t, a->x.data, i, end)), end);
}

static void gelu_forward_part(void *context, int64_t part, int thread)
{
	const struct op_gelu_forward *a = context;
	BY_TYPE(a->out.dtype, gelu_forward, a, part * CHUNK, least((part + 1) * CHUNK, tensor_count(a->out)));
}

void FAST(gelu_forward)(struct device *dev, const struct op_gelu_forward *a)
{
	if (a->out.dtype == F64) {
		ops_plain.gelu_forward(dev, a);
		return;
	}
	struct op_gelu_forward copy = *a;
	parallel(dev, ceil_div(tensor_count(a->out), CHUNK), gelu_forward_part, &copy);
}

INLINE void heads_copy_rows(enum dtype to, enum dtype from, const struct op_heads_copy *a, int64_t begin, int64_t end)
{
	const int64_t size = a->to.shape[3], n = a->count * size;
	for (int64_t g = begin; g < end; g++) {
		void *y = row_at(to, a->to.data, (g * a->to.shape[2] + a->to_first) * size);
		const void *x = row_at(from, a->from.data, (g * a->from.shape[2] + a->from_first) * size);
		for (int64_t i = 0; i < n; i += LANES)
			put_to(to, y, i, get_to(from, x, i, n), n);
	}
}

INLINE void heads_copy_to(enum dtype to, const struct op_heads_copy *a, int64_t begin, int64_t end)
{
	switch (a->from.dtype) {
	case F32:
		heads_copy_rows(to, F32, a, begin, end);
		break;
	case F16:
		heads_copy_rows(to, F16, a, begin, end);
		break;
	default:
		heads_copy_rows(to, BF16, a, begin, end);
		break;
	}
}

static void heads_copy_part(void *context, int64_t part, int thread)
{
	const struct op_heads_copy *a = context;
	const int64_t groups = a->to.shape[1];
	BY_TYPE(a->to.dtype, heads_copy_to, a, part * groups, (part + 1) * groups);
}

void FAST(heads_copy)(struct device *dev, const struct op_heads_copy *a)
{
	if (a->to.dtype == F64) {
		ops_plain.heads_copy(dev, a);
		return;
	}
	struct op_heads_copy copy = *a;
	parallel(dev, a->to.shape[0], heads_copy_part, &copy);
}

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum { ROWS = 16 }; /* of a part */

static int64_t token_at(struct tensor tokens, int64_t n)
{
	return ((const int32_t *)tokens.data)[n];
}

static void embedding_forward_part(void *context, int64_t part, int thread)
{
	const struct op_embedding_forward *a = context;
	const size_t bytes = (size_t)a->out.shape[1] * dtype_size(a->out.dtype);
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->out.shape[0]); n++) {
		int64_t row = token_at(a->tokens, n) - a->first;
		char *out = (char *)a->out.data + (size_t)n * bytes;
		if (row >= 0 && row < a->table.shape[0])
			memcpy(out, (const char *)a->table.data + (size_t)row * bytes, bytes);
		else
			memset(out, 0, bytes);
	}
}

void FAST(embedding_forward)(struct device *dev, const struct op_embedding_forward *a)
{
	struct op_embedding_forward copy = *a;
	parallel(dev, ceil_div(a->out.shape[0], ROWS), embedding_forward_part, &copy);
}

INLINE void embedding_backward(enum dtype t, const struct op_embedding_backward *a, int64_t part)
{
	const int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	const int32_t *order = a->order.data;
	int64_t i = part * ROWS, end = least(i + ROWS, rows);
	/* A run of equal tokens belongs to the part where it begins. */
	while (i > 0 && i < end && token_at(a->tokens, order[i]) == token_at(a->tokens, order[i - 1]))
		i++;
	if (i == end)
		return;
	while (end < rows && token_at(a->tokens, order[end]) == token_at(a->tokens, order[end - 1]))
		end++;
	for (; i < end; i++) {
		int64_t row = token_at(a->tokens, order[i]) - a->first;
		if (row < 0 || row >= a->dtable.shape[0])
			continue;
		float *sums = (float *)a->dtable.data + row * width;
		const void *dout = row_at(t, a->dout.data, order[i] * width);
		for (int64_t c = 0; c < width; c += LANES)
			put_to(F32, sums, c, get_to(F32, sums, c, width) + get_to(t, dout, c, width), width);
	}
}

static void embedding_backward_part(void *context, int64_t part, int thread)
{
	const struct op_embedding_backward *a = context;
	BY_TYPE(a->dout.dtype, embedding_backward, a, part);
}

void FAST(embedding_backward)(struct device *dev, const struct op_embedding_backward *a)
{
	if (a->dout.dtype == F64) {
		ops_plain.embedding_backward(dev, a);
		return;
	}
	struct op_embedding_backward copy = *a;
	parallel(dev, ceil_div(a->dout.shape[0], ROWS), embedding_backward_part, &copy);
}

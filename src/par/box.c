#include "par/box.h"

#include <string.h>

#include "base/error.h"

struct box box_whole(int dims, const int64_t *shape)
{
	struct box b = {.dims = dims, .end = {1, 1, 1, 1}};
	check(dims >= 1 && dims <= TENSOR_DIMS);
	for (int i = 0; i < dims; i++)
		b.end[i] = shape[i];
	return b;
}

int64_t box_count(const struct box *b)
{
	int64_t count = 1;
	for (int i = 0; i < b->dims; i++)
		count *= b->end[i] > b->begin[i] ? b->end[i] - b->begin[i] : 0;
	return count;
}

bool box_intersect(struct box *out, const struct box *a, const struct box *b)
{
	check(a->dims == b->dims);
	struct box c = {.dims = a->dims, .end = {1, 1, 1, 1}};
	for (int i = 0; i < a->dims; i++) {
		c.begin[i] = a->begin[i] > b->begin[i] ? a->begin[i] : b->begin[i];
		c.end[i] = a->end[i] < b->end[i] ? a->end[i] : b->end[i];
	}
	*out = c;
	return box_count(&c) > 0;
}

/* Elements begin … end of b, whose dimensions before d have one index: a part of a row, whole rows, a part of a row, and the
 * same again inside the parts. */
static int range(struct box *out, const struct box *b, int d, int64_t begin, int64_t end)
{
	int64_t row = 1;
	struct box c = *b;
	int n = 0;
	if (begin >= end)
		return 0;
	for (int i = d + 1; i < b->dims; i++)
		row *= b->end[i] - b->begin[i];
	int64_t first = begin / row, last = (end - 1) / row; /* rows that have some of it */
	int64_t whole_begin = (begin + row - 1) / row, whole_end = end / row;
	if (first == last && whole_begin >= whole_end) {
		c.begin[d] = b->begin[d] + first;
		c.end[d] = c.begin[d] + 1;
		return range(out, &c, d + 1, begin - first * row, end - first * row);
	}
	if (first < whole_begin) {
		c.begin[d] = b->begin[d] + first;
		c.end[d] = c.begin[d] + 1;
		n += range(out + n, &c, d + 1, begin - first * row, row);
	}
	if (whole_begin < whole_end) {
		c.begin[d] = b->begin[d] + whole_begin;
		c.end[d] = b->begin[d] + whole_end;
		out[n++] = c;
	}
	if (last >= whole_end) {
		c.begin[d] = b->begin[d] + last;
		c.end[d] = c.begin[d] + 1;
		n += range(out + n, &c, d + 1, 0, end - last * row);
	}
	return n;
}

int box_range(struct box out[BOX_RANGE], const struct box *b, int64_t begin, int64_t end)
{
	check(begin >= 0 && end <= box_count(b));
	return range(out, b, 0, begin, end);
}

/* Element offset of global position `at` within the dense array that holds b. */
static int64_t offset_in(const struct box *b, const int64_t at[TENSOR_DIMS])
{
	int64_t offset = 0;
	for (int i = 0; i < TENSOR_DIMS; i++)
		offset = offset * (b->end[i] - b->begin[i]) + at[i] - b->begin[i];
	return offset;
}

void box_copy(void *to, const struct box *to_box, const void *from, const struct box *from_box,
	      const struct box *part, size_t size)
{
	if (box_count(part) == 0)
		return;
	int last = part->dims - 1;
	int64_t at[TENSOR_DIMS] = {0}, run = part->end[last] - part->begin[last];
	memcpy(at, part->begin, sizeof at);
	for (;;) {
		memcpy((char *)to + (size_t)offset_in(to_box, at) * size,
		       (const char *)from + (size_t)offset_in(from_box, at) * size, (size_t)run * size);
		int i = last - 1;
		while (i >= 0 && ++at[i] == part->end[i]) {
			at[i] = part->begin[i];
			i--;
		}
		if (i < 0)
			return;
	}
}

void box_runs(const struct box *b, const int64_t *shape,
	      void (*f)(void *context, int64_t global, int64_t local, int64_t count), void *context)
{
	if (box_count(b) == 0)
		return;
	/* From the right, dimensions that are whole join the run; the first that is not still gives a range. */
	int split = b->dims - 1;
	while (split > 0 && b->begin[split] == 0 && b->end[split] == shape[split])
		split--;
	struct box global = box_whole(b->dims, shape);
	int64_t at[TENSOR_DIMS], run = 1;
	memcpy(at, b->begin, sizeof at);
	for (int i = split; i < b->dims; i++)
		run *= b->end[i] - b->begin[i];
	for (;;) {
		f(context, offset_in(&global, at), offset_in(b, at), run);
		int i = split - 1;
		while (i >= 0 && ++at[i] == b->end[i]) {
			at[i] = b->begin[i];
			i--;
		}
		if (i < 0)
			return;
	}
}

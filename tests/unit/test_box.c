#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "par/box.h"

static struct box make(int dims, const int64_t *begin, const int64_t *end)
{
	struct box b = {.dims = dims, .end = {1, 1, 1, 1}};
	for (int i = 0; i < dims; i++) {
		b.begin[i] = begin[i];
		b.end[i] = end[i];
	}
	return b;
}

#define AT(...) ((const int64_t[]){__VA_ARGS__})

static void test_whole_and_intersect(void **state)
{
	struct box whole = box_whole(3, AT(4, 5, 6)), out;
	struct box a = make(3, AT(1, 0, 2), AT(3, 5, 6)), b = make(3, AT(2, 3, 0), AT(4, 4, 3));
	assert_int_equal(box_count(&whole), 120);
	assert_int_equal(box_count(&a), 40);
	assert_true(box_intersect(&out, &a, &b));
	struct box common = make(3, AT(2, 3, 2), AT(3, 4, 3));
	assert_memory_equal(&out, &common, sizeof out);
	assert_int_equal(box_count(&out), 1);
	assert_true(box_intersect(&out, &whole, &a));
	assert_memory_equal(&out, &a, sizeof out);

	struct box apart = make(3, AT(3, 0, 0), AT(4, 5, 6)); /* touches a at row 3, which a does not hold */
	assert_false(box_intersect(&out, &a, &apart));
	assert_int_equal(box_count(&out), 0);
}

/* The number of the element at a global position, row-major. */
static int64_t global_number(const int64_t *shape, const int64_t *at, int dims)
{
	int64_t number = 0;
	for (int i = 0; i < dims; i++)
		number = number * shape[i] + at[i];
	return number;
}

static void next(const struct box *b, int64_t *at)
{
	for (int i = b->dims - 1; i >= 0; i--) {
		if (++at[i] < b->end[i])
			return;
		at[i] = b->begin[i];
	}
}

/* An array that holds `b`, each element its own global number. */
static void fill(const struct box *b, const int64_t *shape, int64_t *out)
{
	int64_t at[TENSOR_DIMS];
	memcpy(at, b->begin, sizeof at);
	for (int64_t i = 0; i < box_count(b); i++, next(b, at))
		out[i] = global_number(shape, at, b->dims);
}

static const struct {
	int dims;
	int64_t shape[4], begin[4], end[4];
} boxes[] = {
	{1, {7}, {2}, {5}},
	{1, {7}, {0}, {7}},
	{2, {4, 6}, {1, 2}, {3, 6}},
	{2, {4, 6}, {1, 0}, {3, 6}},
	{3, {4, 5, 6}, {1, 2, 3}, {2, 4, 6}},
	{3, {4, 5, 6}, {1, 2, 0}, {4, 4, 6}},
	{3, {4, 5, 6}, {0, 0, 0}, {4, 5, 6}},
	{4, {2, 3, 4, 5}, {1, 1, 0, 0}, {2, 3, 4, 5}},
	{4, {2, 3, 4, 5}, {0, 1, 1, 2}, {2, 3, 3, 4}},
	{2, {4, 6}, {2, 3}, {2, 6}}, /* empty */
};

/* Copying between any two boxes of the same array moves exactly the common part. */
static void test_copy(void **state)
{
	enum { N = sizeof boxes / sizeof *boxes };
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			const int64_t *shape = boxes[i].shape;
			if (boxes[i].dims != boxes[j].dims || memcmp(shape, boxes[j].shape, sizeof boxes[i].shape) != 0)
				continue;
			struct box from = make(boxes[i].dims, boxes[i].begin, boxes[i].end);
			struct box to = make(boxes[j].dims, boxes[j].begin, boxes[j].end), part;
			int64_t source[120], target[120], expected[120];
			fill(&from, shape, source);
			fill(&to, shape, expected);
			memset(target, 0xff, sizeof target);
			box_intersect(&part, &from, &to);
			box_copy(target, &to, source, &from, &part, sizeof *source);
			int64_t at[TENSOR_DIMS];
			memcpy(at, to.begin, sizeof at);
			for (int64_t k = 0; k < box_count(&to); k++, next(&to, at)) {
				bool inside = true;
				for (int d = 0; d < to.dims; d++)
					inside = inside && at[d] >= from.begin[d] && at[d] < from.end[d];
				assert_int_equal(target[k], inside ? expected[k] : -1);
			}
		}
}

struct seen {
	const int64_t *shape;
	int64_t numbers[120];
	int64_t count;
	int calls;
};

static void see(void *context, int64_t global, int64_t local, int64_t count)
{
	struct seen *s = context;
	assert_int_equal(local, s->count); /* in order, without a hole */
	for (int64_t i = 0; i < count; i++)
		s->numbers[s->count++] = global + i;
	s->calls++;
}

static void test_runs(void **state)
{
	for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
		struct box b = make(boxes[i].dims, boxes[i].begin, boxes[i].end);
		struct seen s = {.shape = boxes[i].shape};
		int64_t expected[120];
		fill(&b, boxes[i].shape, expected);
		box_runs(&b, boxes[i].shape, see, &s);
		assert_int_equal(s.count, box_count(&b));
		assert_memory_equal(s.numbers, expected, (size_t)s.count * sizeof *expected);
		int runs = s.count > 0; /* runs are as long as they can be: count the breaks */
		for (int64_t k = 1; k < s.count; k++)
			runs += expected[k] != expected[k - 1] + 1;
		assert_int_equal(s.calls, runs);
	}
}

/* Whether elements begin … end of b are a box: theirs, where as many lie between their least and largest positions. */
static bool is_box(const struct box *b, int64_t begin, int64_t end, struct box *out)
{
	struct box around = *b;
	int64_t at[TENSOR_DIMS];
	memcpy(at, b->begin, sizeof at);
	for (int64_t i = 0; i < end; i++, next(b, at))
		for (int d = 0; d < b->dims && i >= begin; d++) {
			around.begin[d] = i == begin || at[d] < around.begin[d] ? at[d] : around.begin[d];
			around.end[d] = i == begin || at[d] + 1 > around.end[d] ? at[d] + 1 : around.end[d];
		}
	*out = around;
	return box_count(&around) == end - begin;
}

/* All ranges of all boxes: each part is the box of the elements that it stands for, one behind the other, and no cut into
 * boxes has fewer. */
static void test_range(void **state)
{
	const struct box of[] = {
		make(1, AT(2), AT(9)), make(2, AT(1, 2), AT(5, 5)), make(2, AT(0, 0), AT(1, 6)), make(2, AT(3, 1), AT(8, 2)),
		make(3, AT(1, 0, 2), AT(4, 2, 5)), make(3, AT(0, 4, 1), AT(3, 5, 4)), make(4, AT(1, 2, 0, 3), AT(3, 5, 2, 5)),
		make(4, AT(0, 0, 0, 0), AT(2, 1, 2, 3)), make(4, AT(0, 1, 0, 1), AT(3, 3, 2, 3)),
	};
	enum { MOST = 24 };
	int longest = 0;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		const struct box *b = &of[i];
		int64_t count = box_count(b);
		assert_true(count <= MOST);
		for (int64_t begin = 0; begin <= count; begin++) {
			int fewest[MOST + 1] = {0}; /* for the range from begin on to here */
			for (int64_t end = begin; end <= count; end++) {
				struct box parts[BOX_RANGE], right;
				int n = box_range(parts, b, begin, end);
				fewest[end] = end > begin ? MOST : 0;
				for (int64_t cut = begin; cut < end; cut++)
					if (is_box(b, cut, end, &right) && fewest[cut] + 1 < fewest[end])
						fewest[end] = fewest[cut] + 1;
				assert_int_equal(n, fewest[end]);
				assert_true(n <= 2 * b->dims - 1);
				int64_t at = begin;
				for (int k = 0; k < n; k++) {
					assert_true(is_box(b, at, at + box_count(&parts[k]), &right));
					assert_memory_equal(&parts[k], &right, sizeof right);
					at += box_count(&parts[k]);
				}
				assert_int_equal(at, end);
				longest = n > longest ? n : longest;
			}
		}
	}
	assert_int_equal(longest, BOX_RANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_and_intersect),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_range),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

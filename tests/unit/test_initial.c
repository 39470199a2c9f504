/* Initial values by any number of threads are those of one. */
#include "scratch.h"

#include "train/initial.h"

static void threads_do_not_matter(void **state)
{
	enum { ROWS = 700, COLUMNS = 301 };
	const struct param p = {
		.name = "layers.3.mlp.up.weight", .dims = 2, .shape = {ROWS, COLUMNS, 1, 1}, .std = 0.02,
		.box = {.dims = 2, .end = {ROWS, COLUMNS, 1, 1}}, .here = true,
	};
	static float one[ROWS * COLUMNS], many[ROWS * COLUMNS];
	param_initial(&p, 7, 0, ROWS * COLUMNS, one);
	for (int threads = 1; threads <= 130; threads = threads * 3 + 1) {
		memset(many, 0xff, sizeof many);
		initial_values(&p, 7, 0, ROWS * COLUMNS, many, threads);
		assert_memory_equal(one, many, sizeof one);
		memset(many, 0xff, sizeof many);
		initial_values(&p, 7, 1001, 200003, many, threads);
		assert_memory_equal(one + 1001, many, 200003 * sizeof *one);
	}
	initial_values(&p, 7, 5, 1, many, 8);
	assert_true(many[0] == one[5] && one[5] != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(threads_do_not_matter)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The line through a link's measured seconds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/calibrate_bench.h"

enum { SIZES = 6 };
static const double size[SIZES] = {1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25};

static void test_line(void **state)
{
	double seconds[SIZES];
	for (int i = 0; i < SIZES; i++)
		seconds[i] = 20e-6 + size[i] * 0.04e-9;
	struct calibrate_line l = calibrate_fit(size, seconds, SIZES);
	assert_true(fabs(l.floor * 1e6 - 20) < 1e-6);
	assert_true(fabs(l.slope * 1e9 - 0.04) < 1e-9);
	assert_true(l.worst < 1e-9);
}

/* Every point a tenth off, up and down in turn: the line is no farther than twice that, at both ends. */
static void test_noise(void **state)
{
	double seconds[SIZES];
	for (int i = 0; i < SIZES; i++)
		seconds[i] = (20e-6 + size[i] * 0.04e-9) * (i % 2 ? 1.1 : 0.9);
	struct calibrate_line l = calibrate_fit(size, seconds, SIZES);
	assert_true(fabs(l.floor * 1e6 - 20) < 4);
	assert_true(fabs(l.slope * 1e9 - 0.04) < 0.008);
	assert_true(l.worst > 0.05 && l.worst < 0.25);
}

/* Points that no line with a positive floor and slope meets still give rates that plans can use. */
static void test_odd(void **state)
{
	static const double falling[] = {5, 4, 3, 2, 1, 0.5}, steep[] = {1e-9, 1e-7, 1e-5, 1e-3, 1e-1, 10};
	for (int i = 0; i < 2; i++) {
		struct calibrate_line l = calibrate_fit(size, i ? steep : falling, SIZES);
		assert_true(l.floor >= 0 && l.slope > 0 && isfinite(l.slope) && l.worst > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_odd),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

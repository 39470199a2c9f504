#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "train/order.h"

/* Every window once, for every number of windows up to 2000. */
static void is_a_bijection(void **state)
{
	static unsigned char seen[2000];
	for (int64_t windows = 1; windows <= 2000; windows++) {
		memset(seen, 0, sizeof seen);
		for (int64_t i = 0; i < windows; i++) {
			int64_t w = order_window(1234, 3, windows % 5, windows, i);
			assert_in_range(w, 0, windows - 1);
			assert_int_equal(seen[w]++, 0);
		}
	}
}

/* The network backwards, from its description: undoes the rounds from the last to the first. */
static int64_t place_of(uint64_t seed, int source, int64_t epoch, int64_t windows, int64_t window)
{
	int bits = 0;
	while (bits < 62 && (INT64_C(1) << bits) < windows)
		bits += 2;
	uint64_t low = (UINT64_C(1) << bits / 2) - 1, x = (uint64_t)window;
	do {
		uint64_t left = x >> bits / 2, right = x & low;
		for (int round = 7; round >= 0; round--) {
			struct philox c = {{(uint32_t)left, (uint32_t)round, (uint32_t)epoch, (uint32_t)source}};
			uint64_t before = (right ^ philox(seed, c).word[0]) & low;
			right = left;
			left = before;
		}
		x = left << bits / 2 | right;
	} while (x >= (uint64_t)windows);
	return (int64_t)x;
}

static void can_be_undone_at_any_size(void **state)
{
	static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000003, INT64_C(1) << 40, (INT64_C(1) << 40) - 12345,
					(INT64_C(1) << 40) + 1, INT64_C(1) << 62, (INT64_C(1) << 61) + 7};
	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
		for (int64_t j = 0; j < 200; j++) {
			int64_t i = (int64_t)((uint64_t)j * UINT64_C(0x9E3779B97F4A7C15) % (uint64_t)sizes[k]);
			int64_t w = order_window(77, 2, 5, sizes[k], i);
			assert_in_range(w, 0, sizes[k] - 1);
			assert_int_equal(place_of(77, 2, 5, sizes[k], w), i);
		}
}

/* Numbers that were once computed: the order of a run must never move under it. */
static void stays_what_it_is(void **state)
{
	static const int64_t ten[] = {2, 3, 5, 0, 6, 1, 4, 9, 8, 7};
	for (int i = 0; i < 10; i++)
		assert_int_equal(order_window(1234, 0, 0, 10, i), ten[i]);
	assert_int_equal(order_window(1234, 1, 2, INT64_C(1) << 40, 123456789), 18479264206);
}

static void every_epoch_source_and_seed_differs(void **state)
{
	enum { WINDOWS = 64, ORDERS = 60 };
	static int64_t order[ORDERS][WINDOWS];
	for (int k = 0; k < ORDERS; k++)
		for (int i = 0; i < WINDOWS; i++)
			order[k][i] = order_window(k < 40 ? 9 : 10 + (uint64_t)k,
						   k < 20   ? 0
						   : k < 40 ? k
							    : 0,
						   k < 20 ? k : 0, WINDOWS, i);
	for (int a = 0; a < ORDERS; a++)
		for (int b = 0; b < a; b++)
			assert_memory_not_equal(order[a], order[b], sizeof order[a]);
}

/* Where a window comes in an epoch must say nothing about its place in the file: over many epochs each of the 8
 * eighths of the file is equally often at each eighth of an epoch. Chi-square with 49 degrees of freedom: 99.99% are
 * below 94. */
static void mixes_evenly(void **state)
{
	enum { WINDOWS = 800, EPOCHS = 100 };
	int cell[8][8] = {{0}};
	for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
		for (int64_t i = 0; i < WINDOWS; i++)
			cell[i * 8 / WINDOWS][order_window(5, 0, epoch, WINDOWS, i) * 8 / WINDOWS]++;
	double chi = 0, expected = WINDOWS * EPOCHS / 64.0;
	for (int a = 0; a < 8; a++)
		for (int b = 0; b < 8; b++)
			chi += (cell[a][b] - expected) * (cell[a][b] - expected) / expected;
	assert_true(chi < 94);
	assert_true(chi > 10); /* a regular pattern would be too even */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_a_bijection),
		cmocka_unit_test(can_be_undone_at_any_size),
		cmocka_unit_test(stays_what_it_is),
		cmocka_unit_test(every_epoch_source_and_seed_differs),
		cmocka_unit_test(mixes_evenly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which card a rank takes and where it runs, on machines that hwloc makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "place_near.h"

static hwloc_topology_t machine; /* two packages of 8 cores, two threads each: package p has threads 16p … 16p + 15 */

static int make(void **state)
{
	return hwloc_topology_init(&machine) || hwloc_topology_set_synthetic(machine, "pack:2 core:8 pu:2") ||
	       hwloc_topology_load(machine);
}

static int unmake(void **state)
{
	hwloc_topology_destroy(machine);
	return 0;
}

static hwloc_bitmap_t range(unsigned first, int last)
{
	hwloc_bitmap_t b = hwloc_bitmap_alloc();
	hwloc_bitmap_set_range(b, first, last);
	return b;
}

/* Eight cards, numbered by their makers across the packages: even ones hang on package 1. */
static void ranks_go_along_the_cores(void **state)
{
	hwloc_bitmap_t low = range(0, 15), high = range(16, 31);
	hwloc_const_bitmap_t near[8];
	static const int want[8] = {1, 3, 5, 7, 0, 2, 4, 6};
	for (int i = 0; i < 8; i++)
		near[i] = i % 2 ? low : high;
	for (int r = 0; r < 8; r++) {
		int part, parts;
		assert_int_equal(place_near(near, 8, r, 8, &part, &parts), want[r]);
		assert_int_equal(part, r % 4);
		assert_int_equal(parts, 4);
		hwloc_bitmap_t all = range(0, 31), mine = place_cores(machine, near[want[r]], all, false, part, parts);
		hwloc_bitmap_t should = range((unsigned)(4 * r), 4 * r + 3); /* two cores, four threads, none shared */
		assert_true(hwloc_bitmap_isequal(mine, should));
		hwloc_bitmap_free(should);
		hwloc_bitmap_free(mine);
		hwloc_bitmap_free(all);
	}
	hwloc_bitmap_free(low);
	hwloc_bitmap_free(high);
}

/* More ranks than cards, and more ranks than cores near a card. */
static void what_is_short_is_shared(void **state)
{
	hwloc_bitmap_t low = range(0, 15);
	hwloc_const_bitmap_t near[2] = {low, low};
	int part, parts;
	assert_int_equal(place_near(near, 2, 5, 6, &part, &parts), 1);
	assert_int_equal(part, 5);
	assert_int_equal(parts, 6);
	hwloc_bitmap_t all = range(0, 31), mine = place_cores(machine, low, all, false, 11, 20);
	assert_true(hwloc_bitmap_isequal(mine, low));
	hwloc_bitmap_free(mine);
	hwloc_bitmap_free(all);
	hwloc_bitmap_free(low);
}

/* The launcher's word is narrowed to what is near; where nothing of it is near, it stands. */
static void a_binding_is_not_left(void **state)
{
	hwloc_bitmap_t low = range(0, 15), given = range(12, 19), far = range(20, 23), both = range(12, 15);
	hwloc_bitmap_t mine = place_cores(machine, low, given, true, 3, 4);
	assert_true(hwloc_bitmap_isequal(mine, both));
	assert_null(place_cores(machine, low, far, true, 0, 4));
	hwloc_bitmap_free(mine);
	hwloc_bitmap_free(low);
	hwloc_bitmap_free(given);
	hwloc_bitmap_free(far);
	hwloc_bitmap_free(both);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_go_along_the_cores),
		cmocka_unit_test(what_is_short_is_shared),
		cmocka_unit_test(a_binding_is_not_left),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/console.h"

static const struct metrics_step line = {
	.step = 120, .loss = 3.21406, .grad_norm = 0.8125, .lr = 6e-4, .loss_scale = 65536, .tokens_per_second = 8123,
	.mfu = 0.451,
};

static void test_plain(void **state)
{
	char buf[CONSOLE_ROOM];
	struct metrics_step odd = line;
	assert_string_equal(console_line(buf, 0, &line, 1000, 3725), "step 120/1000  loss 3.2141  ETA 1:02:05  "
			    "8.12 k tokens/s  norm 0.812  scale 65536  lr 0.0006  mfu 45.1%");
	odd.loss = NAN;
	odd.grad_norm = INFINITY;
	odd.skipped = true;
	odd.mfu = NAN;
	assert_string_equal(console_line(buf, 0, &odd, 1000, -1), "step 120/1000  loss nan skipped  ETA --:--  "
			    "8.12 k tokens/s  norm inf  scale 65536  lr 0.0006");
	console_line(buf, 0, &line, 120, 0);
	assert_null(strstr(buf, "ETA"));
	assert_non_null(strstr(console_line(buf, 0, &line, 1000, 59.6), "ETA 1:00 "));
	assert_non_null(strstr(console_line(buf, 0, &line, 1000, 200000), "ETA 2d 7h "));
}

/* Never wider than the terminal, whatever is in it; nothing cut in the middle while there is room for the step. */
static void test_width(void **state)
{
	char buf[CONSOLE_ROOM], wide[CONSOLE_ROOM];
	console_line(wide, 99, &line, 1000, 10);
	for (int width = 26; width < 99; width++) { /* a part is there whole or not at all */
		size_t n = strlen(console_line(buf, width, &line, 1000, 10));
		assert_memory_equal(buf, wide, n);
		assert_true(strchr(" ", wide[n]) != NULL);
	}
	for (int width = 1; width < 2 * CONSOLE_ROOM; width++) {
		console_line(buf, width, &line, 1000, 10);
		assert_true((int)strlen(buf) <= width);
		if (width >= 26)
			assert_non_null(strstr(buf, "step 120/1000 ["));
	}
	assert_string_equal(console_line(buf, 40, &line, 1000, 10), "step 120/1000 [=>        ]  loss 3.2141");
	assert_string_equal(console_line(buf, 100, &line, 240, 10), "step 120/240 [==========>         ]  loss 3.2141  ETA 0:10  "
			    "8.12 k tokens/s  norm 0.812  scale 65536");
	console_line(buf, 100, &line, 120, 0);
	assert_non_null(strstr(buf, "[====================]"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_width)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

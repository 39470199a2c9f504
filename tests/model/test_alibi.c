/* Slopes of linear biases: the paper's numbers, and the same for a head whatever rank has it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/error.h"
#include "dev/cpu/cpu.h"
#include "model/alibi.h"

static void near(double have, double want)
{
	assert_true(fabs(have - want) <= 1e-15 * want);
}

/* Press et al. 2022, section 3: 8 heads have 1/2, 1/4 … 1/256; 16 have the 15 geometric means between 1/√2 and 1/256 beside. */
static void powers_of_two(void **state)
{
	near(alibi_slope(1, 0), 1.0 / 256);
	for (int h = 0; h < 8; h++)
		near(alibi_slope(8, h), 1.0 / (2 << h));
	near(alibi_slope(16, 0), sqrt(0.5));
	for (int h = 0; h < 8; h++)
		near(alibi_slope(16, 2 * h + 1), alibi_slope(8, h));
	for (int h = 1; h < 16; h++)
		near(alibi_slope(16, h), sqrt(0.5) * alibi_slope(16, h - 1));
}

/* 12 heads: those of 8, then the first, third, fifth and seventh of 16. 40 heads: those of 32, then every second of 64. */
static void other_numbers(void **state)
{
	for (int h = 0; h < 8; h++)
		near(alibi_slope(12, h), 1.0 / (2 << h));
	for (int h = 0; h < 4; h++)
		near(alibi_slope(12, 8 + h), sqrt(0.5) / (1 << h));
	near(alibi_slope(40, 3), 0.5);
	near(alibi_slope(40, 31), 1.0 / 256);
	near(alibi_slope(40, 32), pow(2, -0.125));
	near(alibi_slope(40, 39), pow(2, -1.875));
	near(alibi_slope(3, 0), 1.0 / 16);
	near(alibi_slope(3, 1), 1.0 / 256);
	near(alibi_slope(3, 2), 0.25);
}

static void shares_are_by_global_number(void **state)
{
	_Alignas(ARENA_ALIGN) static char memory[1 << 10];
	struct device *dev;
	struct error e;
	assert_true(dev_open(&dev, &backend_cpu, &(struct dev_options){.threads = 1}, &e));
	for (int rank = 0; rank < 3; rank++)
		for (enum dtype type = F64; type <= F32; type++) {
			struct arena arena;
			arena_init(&arena, "tables", memory, sizeof memory);
			struct tensor t = alibi_slopes(12, 4 * rank, 4, type, &arena, dev);
			assert_true(t.dtype == type && t.dims == 1 && t.shape[0] == 4);
			for (int i = 0; i < 4; i++) {
				double want = alibi_slope(12, 4 * rank + i);
				assert_true(type == F64 ? ((double *)t.data)[i] == want : ((float *)t.data)[i] == (float)want);
			}
		}
	dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(powers_of_two), cmocka_unit_test(other_numbers), cmocka_unit_test(shares_are_by_global_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The angles of rotary positions: by hand where they are simple, at the borders of the scalings, and as the table that
 * reaches the device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "dev/cpu/cpu.h"
#include "model/rope.h"

static const struct model_settings plain = {.head_size = 128, .sequence = 6, .rope_base = 10000, .rotary_fraction = 1};

static void near(double a, double b)
{
	if (!(fabs(a - b) <= 1e-14 * fabs(b)))
		fail_msg("%.17g, not %.17g", a, b);
}

static void test_series(void **state)
{
	struct model_settings m = plain;
	near(rope_frequency(&m, 0), 1);
	near(rope_frequency(&m, 16), 0.1);
	near(rope_frequency(&m, 32), 0.01);
	near(rope_frequency(&m, 48), 0.001);
	m.rotary_fraction = 0.25; /* 32 elements */
	near(rope_frequency(&m, 8), 0.01);
	m.rope_base = 16;
	near(rope_frequency(&m, 4), 0.5);
	m.rope_scaling = "linear:4";
	near(rope_frequency(&m, 4), 0.125);
	m.rope_scaling = "none";
	near(rope_frequency(&m, 4), 0.5);
}

/* Llama 3.1's numbers: base 500000, 8192 tokens. A turn of 8192/4 = 2048 tokens or less stays; one of 8192 or more is 8 times
 * longer; where the wave is 4096 long, s = (2 − 1)/(4 − 1). */
static void test_llama3(void **state)
{
	struct model_settings m = plain, none = plain;
	m.rope_base = none.rope_base = 500000;
	m.rope_scaling = "llama3:8,1,4,8192";
	bool short_seen = false, long_seen = false, between = false;
	for (int64_t i = 0; i < 64; i++) {
		double theta = rope_frequency(&none, i), wave = 2 * acos(-1) / theta, have = rope_frequency(&m, i);
		double want = wave < 2048 ? theta : wave > 8192 ? theta / 8 : 0;
		if (want == 0) {
			double smooth = (8192 / wave - 1) / 3;
			want = (1 - smooth) * theta / 8 + smooth * theta;
			between = true;
		}
		short_seen |= wave < 2048;
		long_seen |= wave > 8192;
		if (!(fabs(have - want) <= 1e-13 * want))
			fail_msg("frequency %d is %.17g, not %.17g", (int)i, have, want);
	}
	assert_true(short_seen && long_seen && between);
	/* 2π·base^(−1/2) = 2π/4096: a wave of 4096 tokens. */
	m.head_size = 4;
	m.rope_base = 4096 / (2 * acos(-1));
	m.rope_base *= m.rope_base;
	double theta = 2 * acos(-1) / 4096;
	assert_true(fabs(rope_frequency(&m, 1) / (2.0 / 3 * theta / 8 + theta / 3) - 1) < 1e-13);
}

static void test_right(void **state)
{
	struct model_settings m = plain;
	char reason[ROPE_REASON];
	assert_true(rope_right(&m, reason));
	m.head_size = 80;
	m.rotary_fraction = 0.4;
	assert_true(rope_right(&m, reason)); /* 32 */
	m.rotary_fraction = 0.4125;
	assert_false(rope_right(&m, reason)); /* 33 */
	m.rotary_fraction = 0.405;
	assert_false(rope_right(&m, reason));
	assert_string_equal(reason, "model.position = rope turns pairs of elements: model.rotary_fraction = 0.405 of model.head_size = "
				    "80 are 32.4, must be an even number");
}

static void test_table(void **state)
{
	for (enum dtype type = F64; type <= F32; type++) {
		struct model_settings m = plain;
		struct device *dev;
		struct error e;
		struct arena arena;
		_Alignas(ARENA_ALIGN) static char memory[1 << 14];
		m.rotary_fraction = 0.5;
		assert_true(dev_open(&dev, &backend_cpu, &(struct dev_options){.threads = 1}, &e));
		arena_init(&arena, "tables", memory, sizeof memory);
		struct tensor t = rope_table(&m, type, &arena, dev);
		assert_int_equal(t.shape[0], 6);
		assert_int_equal(t.shape[1], 64);
		for (int64_t at = 0; at < 6 * 64; at++) {
			double angle = (double)(at / 64) * pow(10000, -(double)(at % 32) / 32), have;
			double want = at % 64 < 32 ? cos(angle) : sin(angle);
			have = type == F64 ? ((const double *)t.data)[at] : (double)((const float *)t.data)[at];
			assert_true(fabs(have - want) < (type == F64 ? 1e-14 : 1e-7));
		}
		dev_close(dev);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_series), cmocka_unit_test(test_llama3), cmocka_unit_test(test_right), cmocka_unit_test(test_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

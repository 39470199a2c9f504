/* Philox against the known answers of its authors' Random123; the streams built on it against the header's words. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

static void check_known_answers(void **state)
{
	static const struct {
		uint64_t seed; /* key words: low, high */
		struct philox counter, answer;
	} known[] = {
		{0, {{0, 0, 0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
		{~0ull, {{~0u, ~0u, ~0u, ~0u}}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
		{0x299f31d0a4093822ull, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
		 {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct philox w = philox(known[i].seed, known[i].counter);
		assert_memory_equal(&w, &known[i].answer, sizeof w);
	}
}

static void check_normal(void **state)
{
	const double pi = acos(-1);
	const uint64_t seed = 0x123456789abcdefull, i = (5ull << 32) + 77;
	struct philox w = philox(seed, (struct philox){{77, 5, 0xabcdef01, 0xffffffff}});
	double x[4];
	rng_normal(seed, 0xabcdef01, i, x);
	for (int k = 0; k < 4; k += 2) {
		double u = ((double)w.word[k] + 1) / 4294967296.0, angle = 2 * pi * ((double)w.word[k + 1] + 1) / 4294967296.0;
		assert_true(fabs(x[k] - sqrt(-2 * log(u)) * cos(angle)) < 1e-13);
		assert_true(fabs(x[k + 1] - sqrt(-2 * log(u)) * sin(angle)) < 1e-13);
	}
}

static void check_moments(void **state)
{
	enum { GROUPS = 100000 };
	double sum = 0, squares = 0, fourth = 0, x[4], count = 4.0 * GROUPS;
	for (uint64_t i = 0; i < GROUPS; i++) {
		rng_normal(1, 2, i, x);
		for (int k = 0; k < 4; k++) {
			sum += x[k];
			squares += x[k] * x[k];
			fourth += x[k] * x[k] * x[k] * x[k];
		}
	}
	/* Five standard errors: of the mean 1, of the square √2, of the fourth power √96. */
	assert_true(fabs(sum / count) < 5 / sqrt(count));
	assert_true(fabs(squares / count - 1) < 5 * sqrt(2 / count));
	assert_true(fabs(fourth / count - 3) < 5 * sqrt(96 / count));
}

static void check_dropout(void **state)
{
	uint64_t group = (3ull << 32) + 9, sample = (0x1234ull << 32) + 8;
	struct philox w = rng_dropout(6, group, sample, 0x5678);
	struct philox right = philox(6, (struct philox){{9, 3, 8, 0x56781234}});
	assert_memory_equal(&w, &right, sizeof w);
}

/* The threshold is the least word with word ≥ p·2³². */
static void check_threshold(void **state)
{
	static const double rates[] = {0, 0x1p-33, 0x1p-32, 0.1, 0.25, 0.3, 0.5, 0.9, 0.999, 1 - 0x1p-32};
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
		double least = rng_threshold(rates[i]), bound = rates[i] * 4294967296.0;
		assert_true(least >= bound);
		assert_true(least == 0 || least - 1 < bound);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_known_answers), cmocka_unit_test(check_normal),    cmocka_unit_test(check_moments),
		cmocka_unit_test(check_dropout),       cmocka_unit_test(check_threshold),
	};
	return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}

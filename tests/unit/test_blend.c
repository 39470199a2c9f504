#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "train/blend.h"

enum { MOST = 8 };

static struct blend blend_of(const char *const *weights, int sources)
{
	struct blend b;
	struct error e = {0};
	if (!blend_init(&b, weights, sources, &e))
		fail_msg("%s", e.text);
	return b;
}

static void follows_the_rule_by_hand(void **state)
{
	/* Shares ½ ¼ ¼. Deficits for n = 0: ½ ¼ ¼; 1: 0 ½ ½; 2: ½ −¼ ¾; 3: 1 0 0; 4: ½ ¼ ¼, as at first. */
	struct blend b = blend_of((const char *const[]){"2", "1", "1"}, 3);
	static const int expected[] = {0, 1, 2, 0, 0, 1, 2, 0};
	for (int n = 0; n < 8; n++)
		assert_int_equal(blend_source(&b, n), expected[n]);
	blend_finish(&b);
}

/* Exact in whole numbers: shares as counts of `total`. */
static void holds_the_ratio(const char *const *weights, const int64_t *shares, int sources, int64_t samples)
{
	int64_t taken[MOST] = {0}, total = 0;
	struct blend b = blend_of(weights, sources);
	for (int i = 0; i < sources; i++)
		total += shares[i];
	for (int64_t n = 0; n < samples; n++) {
		int best = 0, source = blend_source(&b, n);
		for (int i = 0; i < sources; i++) {
			int64_t behind = n * shares[i] - taken[i] * total; /* times total */
			assert_true(llabs(behind) <= total);
			assert_int_equal(b.taken[i], taken[i]);
			if (behind + shares[i] > (n + 1) * shares[best] - taken[best] * total)
				best = i;
		}
		assert_int_equal(source, best);
		taken[source]++;
	}
	blend_finish(&b);
}

static void keeps_the_ratio_within_one_sample(void **state)
{
	holds_the_ratio((const char *const[]){"1"}, (int64_t[]){1}, 1, 100);
	holds_the_ratio((const char *const[]){"0.7", "0.3"}, (int64_t[]){7, 3}, 2, 5000);
	holds_the_ratio((const char *const[]){"0.1", "0.2", "0.7"}, (int64_t[]){1, 2, 7}, 3, 5000);
	holds_the_ratio((const char *const[]){"1", "1", "1", "1"}, (int64_t[]){1, 1, 1, 1}, 4, 1000);
	holds_the_ratio((const char *const[]){"1e-3", "0.999"}, (int64_t[]){1, 999}, 2, 5000);
	holds_the_ratio((const char *const[]){"999", "1"}, (int64_t[]){999, 1}, 2, 5000);
	holds_the_ratio((const char *const[]){"1.25e1", "7", "0.05", "100"}, (int64_t[]){1250, 700, 5, 10000}, 4,
			30000);
}

static void finds_any_sample(void **state)
{
	const char *const weights[] = {"0.31", "0.17", "0.52"};
	static int source[1000];
	static int64_t taken[1000][3];
	struct blend b = blend_of(weights, 3);
	for (int n = 0; n < 1000; n++) {
		source[n] = blend_source(&b, n);
		memcpy(taken[n], b.taken, sizeof taken[n]);
	}
	for (int k = 0; k < 1000; k++) { /* back and forth */
		int n = k * 619 % 1000;
		assert_int_equal(blend_source(&b, n), source[n]);
		assert_memory_equal(b.taken, taken[n], sizeof taken[n]);
	}
	/* The pattern repeats every 100 samples, so far ones are known too, and found at once. */
	for (int n = 0; n < 100; n++) {
		int64_t far = INT64_C(90000000000000000) + n;
		assert_int_equal(blend_source(&b, far), source[n]);
		assert_int_equal(b.taken[2], far / 100 * 52 + taken[n][2]);
	}
	blend_finish(&b);
}

static void refuses(const char *weight, const char *other, const char *part)
{
	struct blend b;
	struct error e = {0};
	assert_false(blend_init(&b, (const char *const[]){weight, other}, 2, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_non_null(strstr(e.text, part));
}

static void refuses_what_is_no_weight(void **state)
{
	refuses("0", "1", "weight 0:");
	refuses("-1", "1", "weight -1:");
	refuses("1", "x", "weight x:");
	refuses("nan", "1", "weight nan:");
	refuses("1e18", "1", "weight 1e18: too far");
	refuses("1", "1e-18", "weight 1: too far");
	refuses("1e-320", "1e300", "weight");
	refuses("999999999999999", "999999999999998", "round them");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_the_rule_by_hand),
		cmocka_unit_test(keeps_the_ratio_within_one_sample),
		cmocka_unit_test(finds_any_sample),
		cmocka_unit_test(refuses_what_is_no_weight),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

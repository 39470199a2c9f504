#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/range.h"
#include "base/text.h"

static void test_count(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} good[] = {
		{"0", 0},        {"-7", -7},           {"+7", 7},          {"64Ki", 65536},
		{"64ki", 65536}, {"1.5M", 1500000},    {"2G", 2000000000}, {"2Gi", 2147483648},
		{"1k", 1000},    {"1K", 1000},         {"3T", 3000000000000}, {"1Ti", 1099511627776},
		{"1e3", 1000},   {"0.5Ki", 512},       {"2.0", 2},         {".5k", 500},
		{"9223372036854775807", INT64_MAX},    {"-9223372036854775808", INT64_MIN},
		{"9007199254740993", 9007199254740993}, /* 2^53 + 1: not through a double */
		{"1234567", 1234567},
	};
	static const char *const bad[] = {
		"", " ", "x", "1x", "1.5", "0.3Ki", "1 000", "1,000", "0x10", "inf", "nan", "1e400", "--1", "1KiB",
		"9223372036854775808", "-9223372036854775809", "1e19", "99999999999T", "K", " 1", "1 ", "1e", ".", "-",
	};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		int64_t v = -1;
		if (!text_to_count(good[i].text, &v) || v != good[i].value)
			fail_msg("\"%s\" gave %lld", good[i].text, (long long)v);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int64_t v;
		if (text_to_count(bad[i], &v))
			fail_msg("\"%s\" was taken for %lld", bad[i], (long long)v);
	}
}

static void test_number(void **state)
{
	static const char *const bad[] = {"", "x", "1x", "1 ", "inf", "-inf", "nan", "0x1p3", "1e999", "1e", "1.2.3", "."};
	double v;
	assert_true(text_to_number("6e-4", &v) && v == 6e-4);
	assert_true(text_to_number("-0.1", &v) && v == -0.1);
	assert_true(text_to_number("1", &v) && v == 1);
	assert_true(text_to_number("1e-400", &v) && v == 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (text_to_number(bad[i], &v))
			fail_msg("\"%s\" was taken for %g", bad[i], v);
}

static void test_bool(void **state)
{
	bool v = false;
	assert_true(text_to_bool("true", &v) && v);
	assert_true(text_to_bool("Off", &v) && !v);
	assert_true(text_to_bool("YES", &v) && v);
	assert_true(text_to_bool("0", &v) && !v);
	assert_false(text_to_bool("", &v));
	assert_false(text_to_bool("2", &v));
	assert_false(text_to_bool("truee", &v));
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"steps", "seed", "warmup_steps", "micro", "global"};
	assert_string_equal(text_nearest("stpes", names, 5), "steps"); /* swap */
	assert_string_equal(text_nearest("step", names, 5), "steps");  /* insert */
	assert_string_equal(text_nearest("microo", names, 5), "micro"); /* delete */
	assert_string_equal(text_nearest("glabal", names, 5), "global"); /* change */
	assert_string_equal(text_nearest("warmup-steps", names, 5), "warmup_steps");
	assert_null(text_nearest("zzzzzz", names, 5));
	assert_null(text_nearest("x", names, 5));
	assert_null(text_nearest("steps", NULL, 0));

	char longer[300];
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	text_nearest(longer, names, 5); /* stays inside its tables */
}

static void test_say(void **state)
{
	char buf[32];
	assert_string_equal(text_bytes(buf, sizeof buf, 0), "0 B");
	assert_string_equal(text_bytes(buf, sizeof buf, 1536), "1.50 KiB");
	assert_string_equal(text_bytes(buf, sizeof buf, UINT64_C(3) << 30), "3.00 GiB");
	assert_string_equal(text_si(buf, sizeof buf, 1234567), "1.23 M");
	assert_string_equal(text_si(buf, sizeof buf, 12), "12");
	assert_string_equal(text_si(buf, sizeof buf, 124439808), "124 M");
}

static void test_range(void **state)
{
	char buf[64];
	assert_true(range_holds(NULL, -1e300));
	assert_true(range_holds("[0, 1)", 0) && range_holds("[0, 1)", 0.999));
	assert_false(range_holds("[0, 1)", 1) || range_holds("[0, 1)", -1e-9));
	assert_false(range_holds("(0, inf)", 0));
	assert_true(range_holds("(0, inf)", 1e300));
	assert_true(range_holds("[1, 4]", 4));
	assert_false(range_holds("[1, 4]", 4.001));
	assert_string_equal(range_say(buf, sizeof buf, NULL), "");
	assert_string_equal(range_say(buf, sizeof buf, "[1, inf)"), "at least 1");
	assert_string_equal(range_say(buf, sizeof buf, "(0, inf)"), "above 0");
	assert_string_equal(range_say(buf, sizeof buf, "[0, 1)"), "from 0 to below 1");
	assert_string_equal(range_say(buf, sizeof buf, "(0, 16777216]"), "above 0 to 16777216");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_count), cmocka_unit_test(test_number), cmocka_unit_test(test_bool),
		cmocka_unit_test(test_nearest), cmocka_unit_test(test_say), cmocka_unit_test(test_range),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

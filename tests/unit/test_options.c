#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "commands/options.h"

struct values {
	const char *output;
	struct option_list set;
	int64_t jobs;
	double heat;
	bool json;
};

static const struct option_row rows[] = {
	{"output", "PREFIX", OPTION_TEXT, offsetof(struct values, output), .required = true, .help = "where to"},
	{"set", "KEY=VALUE", OPTION_LIST, offsetof(struct values, set), .help = "one more"},
	{"jobs", "N", OPTION_COUNT, offsetof(struct values, jobs), .range = "[1, 64]", .help = "threads"},
	{"temperature", "T", OPTION_NUMBER, offsetof(struct values, heat), .range = "[0, inf)", .help = "heat"},
	{"json", NULL, OPTION_FLAG, offsetof(struct values, json), .help = "as JSON"},
};

static const struct options options = {"mtrain make --output PREFIX INPUT...", "Makes.", rows, 5, 1, 3};

static bool read_line(struct values *v, const char *line, char ***operands, int *count, struct error *e)
{
	static char text[400], *argv[40];
	int argc = 0;
	bool helped;
	*v = (struct values){.jobs = 7};
	*e = (struct error){0};
	strncpy(text, line, sizeof text - 1);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	return options_read(&options, v, argc, argv, operands, count, &helped, e);
}

static void test_good(void **state)
{
	struct values v;
	struct error e;
	char **operands;
	int count;
	assert_true(read_line(&v, "make a --set x=1 --output=p --json b --set y=2 --temperature 0.5", &operands, &count, &e));
	assert_string_equal(v.output, "p");
	assert_int_equal(v.set.count, 2);
	assert_string_equal(v.set.texts[1], "y=2");
	assert_int_equal(v.jobs, 7);
	assert_true(v.heat == 0.5 && v.json);
	assert_int_equal(count, 2);
	assert_string_equal(operands[0], "a");
	assert_string_equal(operands[1], "b");
	assert_true(read_line(&v, "make --output p --jobs 0.0625Ki -- --json", &operands, &count, &e));
	assert_int_equal(v.jobs, 64);
	assert_false(v.json);
	assert_string_equal(operands[0], "--json");
}

static void test_wrong(void **state)
{
	static const struct {
		const char *line, *says;
	} cases[] = {
		{"make --outptu p a", "make: unknown option '--outptu'; did you mean '--output'?"},
		{"make --outptu=p a", "make: unknown option '--outptu'; did you mean '--output'?"},
		{"make --quiet a", "make: unknown option '--quiet'; `mtrain help make` lists them"},
		{"make -x a", "make: unknown option '-x'; `mtrain help make` lists them"},
		{"make -xh a", "make: unknown option '-x'"},
		{"make --hepl", "did you mean '--help'?"},
		{"make --json=1 --output p a", "make: option --json takes no value"},
		{"make --help=1", "make: option --help takes no value"},
		{"make a --output", "make: option --output needs a value: PREFIX"},
		{"make a", "make: --output PREFIX is required"},
		{"make --output p", "make: an argument is missing: usage: mtrain make --output PREFIX INPUT..."},
		{"make --output p a b c d", "make: 'd' is one argument too many"},
		{"make --output p --jobs 65 a", "make: --jobs 65: must be a whole number from 1 to 64"},
		{"make --output p --jobs x a", "make: --jobs x: must be a whole number from 1 to 64"},
		{"make --output p --temperature -1 a", "make: --temperature -1: must be a number at least 0"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct values v;
		struct error e;
		char **operands;
		int count;
		if (read_line(&v, cases[i].line, &operands, &count, &e))
			fail_msg("taken: %s", cases[i].line);
		assert_int_equal(e.code, CODE_USAGE);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_wrong)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

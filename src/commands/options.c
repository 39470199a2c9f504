#include "commands/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/range.h"
#include "base/text.h"

enum { ROWS_MOST = 32, FIRST_VALUE = 256 };

void options_print_help(const struct options *o)
{
	int widest = (int)strlen("-h, --help");
	printf("usage: %s\n\n%s\n\n", o->usage, o->summary);
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < o->count; i++) {
			const struct option_row *r = &o->rows[i];
			char left[80], range[64];
			int n = snprintf(left, sizeof left, "--%s%s%s", r->name, r->argument ? " " : "",
					 r->argument ? r->argument : "");
			widest = n > widest ? n : widest;
			range_say(range, sizeof range, r->range);
			if (pass == 1)
				printf("  %-*s  %s%s%s%s%s\n", widest, left, r->help, *range ? " (" : "", range,
				       *range ? ")" : "", r->required ? "; required" : "");
		}
	printf("  %-*s  this\n", widest, "-h, --help");
}

/* What the user wrote, up to a '=': getopt has just looked at it. */
static bool unknown(const struct options *o, char **argv, struct error *e)
{
	const char *names[ROWS_MOST + 1];
	char given[80];
	snprintf(given, sizeof given, "%.*s", (int)strcspn(argv[optind - 1], "="), argv[optind - 1]);
	if (optopt == 'h' || optopt >= FIRST_VALUE)
		return error_set(e, CODE_USAGE, "%s: option --%s takes no value", argv[0],
				 optopt == 'h' ? "help" : o->rows[optopt - FIRST_VALUE].name);
	if (optopt > 0) /* a letter, perhaps of several in one word */
		snprintf(given, sizeof given, "-%c", optopt);
	for (int i = 0; i < o->count; i++)
		names[i] = o->rows[i].name;
	names[o->count] = "help";
	const char *near = text_nearest(given + strspn(given, "-"), names, o->count + 1);
	if (near)
		return error_set(e, CODE_USAGE, "%s: unknown option '%s'; did you mean '--%s'?", argv[0], given, near);
	return error_set(e, CODE_USAGE, "%s: unknown option '%s'; `mtrain help %s` lists them", argv[0], given, argv[0]);
}

static bool take(const struct option_row *r, void *values, const char *command, const char *text, struct error *e)
{
	void *field = (char *)values + r->offset;
	struct option_list *list = field;
	char range[64];
	int64_t count = 0;
	double number = 0;
	bool good = true;
	switch (r->type) {
	case OPTION_FLAG:
		*(bool *)field = true;
		return true;
	case OPTION_TEXT:
		*(const char **)field = text;
		return true;
	case OPTION_LIST:
		if (list->count == OPTION_LIST_ROOM)
			return error_set(e, CODE_USAGE, "%s: more than %d options --%s", command, OPTION_LIST_ROOM, r->name);
		list->texts[list->count++] = text;
		return true;
	case OPTION_COUNT:
		good = text_to_count(text, &count) && range_holds(r->range, (double)count);
		if (good)
			*(int64_t *)field = count;
		break;
	case OPTION_NUMBER:
		good = text_to_number(text, &number) && range_holds(r->range, number);
		if (good)
			*(double *)field = number;
		break;
	}
	if (good)
		return true;
	range_say(range, sizeof range, r->range);
	return error_set(e, CODE_USAGE, "%s: --%s %s: must be a %snumber%s%s", command, r->name, text,
			 r->type == OPTION_COUNT ? "whole " : "", *range ? " " : "", range);
}

bool options_read(const struct options *o, void *values, int argc, char **argv, char ***operands, int *operand_count,
		  bool *helped, struct error *e)
{
	struct option known[ROWS_MOST + 2] = {0};
	bool given[ROWS_MOST] = {false};
	int c;
	check(o->count <= ROWS_MOST);
	for (int i = 0; i < o->count; i++)
		known[i] = (struct option){o->rows[i].name, o->rows[i].argument ? required_argument : no_argument, NULL,
					   FIRST_VALUE + i};
	known[o->count] = (struct option){"help", no_argument, NULL, 'h'};
	*helped = false;
	optind = 0; /* starts anew */
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		if (c == 'h') {
			options_print_help(o);
			*helped = true;
			return true;
		}
		if (c == '?')
			return unknown(o, argv, e);
		if (c == ':')
			return error_set(e, CODE_USAGE, "%s: option %s needs a value: %s", argv[0], argv[optind - 1],
					 o->rows[optopt - FIRST_VALUE].argument);
		given[c - FIRST_VALUE] = true;
		if (!take(&o->rows[c - FIRST_VALUE], values, argv[0], optarg, e))
			return false;
	}
	for (int i = 0; i < o->count; i++)
		if (o->rows[i].required && !given[i])
			return error_set(e, CODE_USAGE, "%s: --%s %s is required", argv[0], o->rows[i].name,
					 o->rows[i].argument);
	int found = argc - optind;
	check(operands || o->most == 0);
	if (operands) {
		*operands = argv + optind;
		*operand_count = found;
	}
	if (found > o->most)
		return error_set(e, CODE_USAGE, "%s: '%s' is one argument too many", argv[0], argv[optind + o->most]);
	if (found < o->least)
		return error_set(e, CODE_USAGE, "%s: an argument is missing: usage: %s", argv[0], o->usage);
	return true;
}

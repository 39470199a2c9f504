#include <string.h>

#include "base/range.h"
#include "base/text.h"
#include "train/setting.h"

enum { HELP_COLUMN = 34 };

/* What may stand there, where the help line does not say it anyway: choices, a word, a range. */
static void print_values(FILE *out, const struct setting *s)
{
	char range[64];
	range_say(range, sizeof range, s->range);
	const char *between = " (";
	for (const struct setting_choice *choice = s->choices; choice && choice->name; choice++)
		if (*choice->name) {
			fprintf(out, "%s%s", between, choice->name);
			between = " | ";
		}
	if (*range) {
		fprintf(out, "%s%s", between, range);
		between = ", ";
	}
	if (strcmp(between, " (") != 0)
		fputs(")", out);
}

void setting_print_help(FILE *out)
{
	fprintf(out, "; key = default%*s; meaning (what it may be); (r): required by training\n\n",
		HELP_COLUMN - 15, "");
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		if (i == 0 || strcmp(s->section, setting_table[i - 1].section) != 0)
			fprintf(out, "%s[%s]\n", i == 0 ? "" : "\n", s->section);
		int n = fprintf(out, "%s =%s%s", s->key, !s->initial || *s->initial ? " " : "",
				s->initial ? s->initial : "(r)");
		fprintf(out, "%*s; %s", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "", s->help);
		print_values(out, s);
		fputs("\n", out);
	}
}

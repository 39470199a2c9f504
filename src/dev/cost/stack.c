#include "dev/cost/stack.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/inifile.h"
#include "base/range.h"
#include "base/text.h"
#include "dev/cost/builtin.h"

struct row {
	const char *section, *key;
	size_t offset;     /* switch: a bool, fitted: a double */
	const char *range; /* NULL: a switch */
};

#define SWITCH(field) {"switch", #field, offsetof(struct stack, field), NULL}
#define FITTED(field, range) {"fitted", #field, offsetof(struct stack, field), range}
#define TIMES "[0.001, 1000]"
static const struct row rows[] = {
	SWITCH(unfused_attention), SWITCH(selective_attention), SWITCH(even_stages), SWITCH(fp16_gradients),
	SWITCH(synchronous_exchange), SWITCH(no_overlap), SWITCH(whole_recompute), SWITCH(unfused_optimizer), SWITCH(scatter_gather),
	SWITCH(library_workspace),
	FITTED(product_time, TIMES), FITTED(memory_time, TIMES), FITTED(communication_time, TIMES),
	FITTED(op_us, "[0, 1000000]"), FITTED(overhead_gib, "[0, 1000000]"),
};
enum { ROWS = sizeof rows / sizeof *rows };

struct reading {
	struct stack *s;
	const char *path;
	int fitted;
};

static bool set(const struct row *r, struct reading *reading, const struct inifile_entry *x, struct error *e)
{
	char *field = (char *)reading->s + r->offset;
	char words[64];
	double number;
	bool on;
	if (strcmp(r->section, "switch") == 0) {
		if (!text_to_bool(x->value, &on))
			return error_set(e, CODE_USAGE, "%s:%d: %s = %s: must be true or false", reading->path, x->line, x->key, x->value);
		memcpy(field, &on, sizeof on);
		return true;
	}
	if (!text_to_number(x->value, &number) || !range_holds(r->range, number))
		return error_set(e, CODE_USAGE, "%s:%d: %s = %s: must be a number %s", reading->path, x->line, x->key, x->value,
				 range_say(words, sizeof words, r->range));
	memcpy(field, &number, sizeof number);
	if (++reading->fitted > STACK_FITTED)
		return error_set(e, CODE_USAGE, "%s:%d: %s: a stack fits at most %d constants", reading->path, x->line, x->key,
				 STACK_FITTED);
	return true;
}

static bool text(char *to, size_t room, const struct reading *r, const struct inifile_entry *x, struct error *e)
{
	size_t length = strlen(x->value);
	if (length >= room)
		return error_set(e, CODE_USAGE, "%s:%d: %s: has %zu bytes, %zu are the most", r->path, x->line, x->key, length, room - 1);
	memcpy(to, x->value, length + 1);
	return true;
}

static bool entry(void *context, const struct inifile_entry *x, struct error *e)
{
	struct reading *r = context;
	const char *keys[ROWS];
	int count = 0;
	for (int i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].section, x->section) != 0)
			continue;
		if (strcmp(rows[i].key, x->key) == 0)
			return set(&rows[i], r, x, e);
		keys[count++] = rows[i].key;
	}
	if (strcmp(x->section, "stack") == 0 && strcmp(x->key, "name") == 0)
		return text(r->s->name, sizeof r->s->name, r, x, e);
	if (strcmp(x->section, "fit") == 0 && strcmp(x->key, "rows") == 0)
		return text(r->s->fit, sizeof r->s->fit, r, x, e);
	if (count == 0 && strcmp(x->section, "stack") != 0 && strcmp(x->section, "fit") != 0)
		return error_set(e, CODE_USAGE, "%s:%d: unknown section [%s]: there are [stack], [switch], [fitted] and [fit]", r->path, x->line,
				 x->section);
	const char *near = count ? text_nearest(x->key, keys, count) : NULL;
	return error_set(e, CODE_USAGE, "%s:%d: unknown key '%s' in [%s]%s%s%s", r->path, x->line, x->key, x->section,
			 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static const struct stack nothing = {.product_time = 1, .memory_time = 1, .communication_time = 1, .overhead_gib = -1};

static double value_of(const struct row *r, const struct stack *s)
{
	double number;
	bool on;
	if (strcmp(r->section, "switch") == 0) {
		memcpy(&on, (const char *)s + r->offset, sizeof on);
		return on;
	}
	memcpy(&number, (const char *)s + r->offset, sizeof number);
	return number;
}

void stack_each(const struct stack *s, void (*f)(void *context, const char *key, double value), void *context)
{
	for (int i = 0; i < ROWS; i++)
		if (value_of(&rows[i], s) != value_of(&rows[i], &nothing))
			f(context, rows[i].key, value_of(&rows[i], s));
}

bool stack_parse(struct stack *s, const char *path, const char *text, size_t bytes, struct error *e)
{
	struct reading r = {.s = s, .path = path};
	*s = nothing;
	snprintf(s->name, sizeof s->name, "%s", path);
	return inifile_read(path, text, bytes, entry, &r, e);
}

bool stack_load(struct stack *s, const char *name, struct error *e)
{
	const char *text;
	size_t bytes;
	char *read;
	if (!builtin_read("stack", name, &text, &bytes, &read, e))
		return false;
	bool good = stack_parse(s, name, text, bytes, e);
	free(read);
	return good;
}

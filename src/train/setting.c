#include "train/setting.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/inifile.h"
#include "base/range.h"
#include "base/text.h"

const struct setting *setting_find(const char *section, const char *key)
{
	for (int i = 0; i < setting_count; i++)
		if (strcmp(setting_table[i].section, section) == 0 && strcmp(setting_table[i].key, key) == 0)
			return &setting_table[i];
	return NULL;
}

bool setting_is_section(const char *section)
{
	for (int i = 0; i < setting_count; i++)
		if (strcmp(setting_table[i].section, section) == 0)
			return true;
	return false;
}

static const char listing[] = "; `mtrain help settings` lists them all";

char *setting_hint_section(char *buf, size_t room, const char *section)
{
	const char *names[SETTING_MAX] = {0};
	int count = 0;
	for (int i = 0; i < setting_count; i++)
		if (count == 0 || strcmp(names[count - 1], setting_table[i].section) != 0)
			names[count++] = setting_table[i].section;
	const char *near = text_nearest(section, names, count);
	if (near)
		snprintf(buf, room, "; did you mean [%s]?", near);
	else
		snprintf(buf, room, "%s", listing);
	return buf;
}

char *setting_hint_key(char *buf, size_t room, const char *section, const char *key)
{
	const char *names[SETTING_MAX] = {0}, *home = NULL, *near;
	int count = 0;
	for (int i = 0; i < setting_count; i++) {
		if (strcmp(setting_table[i].section, section) == 0)
			names[count++] = setting_table[i].key;
		else if (strcmp(setting_table[i].key, key) == 0)
			home = setting_table[i].section;
	}
	near = text_nearest(key, names, count);
	if (home)
		snprintf(buf, room, "; it belongs to [%s]", home);
	else if (near)
		snprintf(buf, room, "; did you mean '%s'?", near);
	else
		snprintf(buf, room, "%s", listing);
	return buf;
}

static void *field(const struct setting *s, const struct config *c)
{
	return (void *)((uintptr_t)c + s->offset);
}

/* "must be gelu or gelu-erf; did you mean 'gelu'?" */
static bool reason_choices(const struct setting *s, const char *text, char reason[SETTING_REASON])
{
	const char *names[16];
	int count = 0, n = snprintf(reason, SETTING_REASON, "must be ");
	while (s->choices[count].name)
		count++;
	check(count <= 16);
	for (int i = 0; i < count; i++) {
		names[i] = s->choices[i].name;
		n += snprintf(reason + n, SETTING_REASON - (size_t)n, "%s%s",
			      i == 0 ? "" : i == count - 1 ? " or " : ", ", *names[i] ? names[i] : "empty");
	}
	const char *near = text_nearest(text, names, count);
	if (near && *near)
		snprintf(reason + n, SETTING_REASON - (size_t)n, "; did you mean '%s'?", near);
	return false;
}

static bool reason_number(const struct setting *s, bool is_number, char reason[SETTING_REASON])
{
	char range[64];
	const char *what = s->type == SETTING_COUNT ? "a whole number (10000, 64Ki, 1.5M)" : "a number";
	range_say(range, sizeof range, s->range);
	snprintf(reason, SETTING_REASON, "must be %s%s%s%s%s", is_number ? "" : what, is_number || !*range ? "" : " ",
		 range, s->word && *s->word ? ", or " : "", s->word ? s->word : "");
	return false;
}

/* What a number is to the devices, which compute in FP32: its end of the range may be there already, or beyond. */
static double in_single(double value)
{
	if (fabs(value) > (double)FLT_MAX)
		return copysign(INFINITY, value);
	return fabs(value) < (double)FLT_MIN ? 0 : (double)(float)value;
}

static bool reason_single(const struct setting *s, double value, char reason[SETTING_REASON])
{
	char range[64];
	snprintf(reason, SETTING_REASON, "must be %s in single precision as well, where it is %g",
		 range_say(range, sizeof range, s->range), in_single(value));
	return false;
}

static bool read_choice(const struct setting *s, const char *text, int *value, char reason[SETTING_REASON])
{
	for (const struct setting_choice *choice = s->choices; choice->name; choice++)
		if (strcmp(text, choice->name) == 0) {
			*value = choice->value;
			return true;
		}
	return reason_choices(s, text, reason);
}

bool setting_read(const struct setting *s, struct config *c, const char *text, char reason[SETTING_REASON])
{
	int64_t count = 0;
	double number = 0;
	int choice = 0;
	bool word = s->word && strcmp(text, s->word) == 0;
	switch (s->type) {
	case SETTING_COUNT:
		if (!word && !text_to_count(text, &count))
			return reason_number(s, text_to_number(text, &number) && !range_holds(s->range, number),
					     reason);
		if (!word && !range_holds(s->range, (double)count))
			return reason_number(s, true, reason);
		*(int64_t *)field(s, c) = count;
		return true;
	case SETTING_NUMBER:
		if (!word && !text_to_number(text, &number))
			return reason_number(s, false, reason);
		if (!word && !range_holds(s->range, number))
			return reason_number(s, true, reason);
		if (!word && !range_holds(s->range, in_single(number)))
			return reason_single(s, number, reason);
		*(double *)field(s, c) = number;
		return true;
	case SETTING_BOOL:
		if (text_to_bool(text, field(s, c)))
			return true;
		snprintf(reason, SETTING_REASON, "must be true or false");
		return false;
	case SETTING_CHOICE:
		if (!read_choice(s, text, &choice, reason))
			return false;
		memcpy(field(s, c), &choice, sizeof choice);
		return true;
	case SETTING_TEXT:
		if (s->choices && !read_choice(s, text, &choice, reason))
			return false;
		if (!inifile_can_hold(text)) {
			snprintf(reason, SETTING_REASON, "cannot hold control characters, nor ';' after white space");
			return false;
		}
		*(const char **)field(s, c) = text;
		return true;
	}
	return false;
}

const char *setting_print(const struct setting *s, const struct config *c, char buf[SETTING_ROOM])
{
	int choice;
	const char *text;
	switch (s->type) {
	case SETTING_COUNT:
	case SETTING_NUMBER:
		if (s->word && setting_number(s, c) == 0)
			return s->word;
		if (s->type == SETTING_COUNT)
			snprintf(buf, SETTING_ROOM, "%lld", (long long)*(int64_t *)field(s, c));
		else
			for (int digits = 1; digits <= 17; digits++) {
				snprintf(buf, SETTING_ROOM, "%.*g", digits, *(double *)field(s, c));
				if (strtod(buf, NULL) == *(double *)field(s, c))
					break;
			}
		return buf;
	case SETTING_BOOL:
		return *(bool *)field(s, c) ? "true" : "false";
	case SETTING_CHOICE:
		memcpy(&choice, field(s, c), sizeof choice);
		for (const struct setting_choice *one = s->choices; one->name; one++)
			if (one->value == choice)
				return one->name;
		return "";
	case SETTING_TEXT:
		text = *(const char **)field(s, c);
		return text ? text : "";
	}
	return "";
}

double setting_number(const struct setting *s, const struct config *c)
{
	switch (s->type) {
	case SETTING_COUNT:
		return (double)*(int64_t *)field(s, c);
	case SETTING_NUMBER:
		return *(double *)field(s, c);
	case SETTING_BOOL:
		return *(bool *)field(s, c);
	case SETTING_CHOICE:
	case SETTING_TEXT:
		break;
	}
	check(!"a setting that is a number");
	return 0;
}

bool setting_set_number(const struct setting *s, struct config *c, double value)
{
	if (s->type == SETTING_NUMBER) {
		*(double *)field(s, c) = value;
	} else if (s->type == SETTING_BOOL) {
		*(bool *)field(s, c) = value != 0;
	} else {
		check(s->type == SETTING_COUNT);
		if (value != floor(value) || fabs(value) >= 0x1p53)
			return false;
		*(int64_t *)field(s, c) = (int64_t)value;
	}
	return true;
}

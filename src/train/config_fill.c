#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/inifile.h"
#include "train/config.h"

static const struct setting *near(const char *section, const char *key)
{
	const struct setting *s = setting_find(section, key);
	for (int i = 0; !s && i < setting_count; i++)
		if (strcmp(setting_table[i].key, key) == 0)
			s = &setting_table[i];
	return s;
}

static bool operand(const struct config *c, const struct setting *s, const char *key, double *out)
{
	const struct setting *other = near(s->section, key);
	check(other && other < s); /* what stands above is filled by now */
	*out = setting_number(other, c);
	return c->origin[other - setting_table].source != CONFIG_UNSET;
}

/* A rule: KEY, NUMBER*KEY or KEY/KEY. False: something it needs is unset. */
static bool rule(const struct config *c, const struct setting *s, double *out)
{
	char *end, key[64], *divisor;
	double factor = strtod(s->initial, &end), by;
	if (*end == '*')
		end++;
	else
		factor = 1;
	check(strlen(end) < sizeof key);
	strcpy(key, end);
	divisor = strchr(key, '/');
	if (divisor)
		*divisor++ = '\0';
	if (!operand(c, s, key, out))
		return false;
	*out *= factor;
	if (divisor) {
		if (!operand(c, s, divisor, &by) || by == 0)
			return false;
		*out /= by;
	}
	return true;
}

/* The text with NAME replaced by the stem of the config file's name, from malloc; NULL: NAME is not in it. */
static char *with_name(const char *text, const char *path)
{
	const char *at = strstr(text, "NAME"), *slash = strrchr(path, '/');
	const char *stem = slash ? slash + 1 : path, *dot = strrchr(stem, '.');
	int n = (int)(dot && dot > stem ? dot - stem : (long)strlen(stem));
	char *out;
	if (!at)
		return NULL;
	if (asprintf(&out, "%.*s%.*s%s", (int)(at - text), text, n, stem, at + 4) < 0)
		die(CODE_MACHINE, "out of memory");
	bool good = inifile_can_hold(out);
	for (char *p = out; *p && !good; p++) /* a file may have any name; a setting may not */
		if (*p == ';' || iscntrl((unsigned char)*p) || isspace((unsigned char)*p))
			*p = '_';
	return out;
}

void config_fill(struct config *c)
{
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		char reason[SETTING_REASON];
		double value = 0;
		if (c->origin[i].source > CONFIG_DEFAULT || !s->initial)
			continue;
		if (s->type == SETTING_TEXT) {
			char *text = with_name(s->initial, c->path);
			check(setting_read(s, c, text ? text : s->initial, reason));
			free(c->origin[i].text);
			c->origin[i] = (struct config_origin){.source = CONFIG_DEFAULT, .text = text};
		} else if (s->other && s->other(c) != 0) {
			check(setting_set_number(s, c, s->other(c)));
			c->origin[i].source = CONFIG_DEFAULT;
		} else if (setting_read(s, c, s->initial, reason)) {
			c->origin[i].source = CONFIG_DEFAULT;
		} else {
			bool known = rule(c, s, &value) && setting_set_number(s, c, value);
			c->origin[i].source = known ? CONFIG_DEFAULT : CONFIG_UNSET;
			if (!known)
				setting_set_number(s, c, 0);
		}
	}
}

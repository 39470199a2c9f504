#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool suffix_factor(const char *s, double *factor)
{
	static const struct {
		const char *name;
		double factor;
	} suffixes[] = {
		{"", 1},          {"k", 1e3},       {"K", 1e3},       {"M", 1e6},       {"G", 1e9},
		{"T", 1e12},      {"Ki", 0x1p10},   {"ki", 0x1p10},   {"Mi", 0x1p20},   {"Gi", 0x1p30},
		{"Ti", 0x1p40},
	};
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
		if (strcmp(s, suffixes[i].name) == 0) {
			*factor = suffixes[i].factor;
			return true;
		}
	return false;
}

/* strtod accepts white space, hex, "inf" and "nan": only plain decimals are numbers here. */
static bool decimal(const char *text, double *out, char **end)
{
	const char *s = text;
	if (*s == '+' || *s == '-')
		s++;
	if (!isdigit((unsigned char)*s) && !(*s == '.' && isdigit((unsigned char)s[1])))
		return false;
	if (*s == '0' && (s[1] == 'x' || s[1] == 'X'))
		return false;
	*out = strtod(text, end);
	return isfinite(*out);
}

bool text_to_count(const char *text, int64_t *out)
{
	double value, factor;
	char *end;
	if (!decimal(text, &value, &end) || !suffix_factor(end, &factor))
		return false;
	if (factor == 1 && strpbrk(text, ".eE") == NULL) { /* exact beyond 2^53 */
		errno = 0;
		long long whole = strtoll(text, NULL, 10);
		if (errno != 0)
			return false;
		*out = whole;
		return true;
	}
	value *= factor;
	if (value != floor(value) || fabs(value) >= 0x1p63)
		return false;
	*out = (int64_t)value;
	return true;
}

bool text_to_number(const char *text, double *out)
{
	char *end;
	return decimal(text, out, &end) && *end == '\0';
}

bool text_to_bool(const char *text, bool *out)
{
	static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
	for (int i = 0; i < 4; i++) {
		if (strcasecmp(text, yes[i]) == 0)
			return *out = true, true;
		if (strcasecmp(text, no[i]) == 0)
			return *out = false, true;
	}
	return false;
}

enum { NEAREST_ROOM = 64 };

/* Damerau–Levenshtein distance (optimal string alignment). */
static int edits(const char *a, const char *b)
{
	int rows[3][NEAREST_ROOM + 1];
	int n = (int)strnlen(a, NEAREST_ROOM), m = (int)strnlen(b, NEAREST_ROOM);
	for (int j = 0; j <= m; j++)
		rows[0][j] = j;
	for (int i = 1; i <= n; i++) {
		int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
		row[0] = i;
		for (int j = 1; j <= m; j++) {
			int best = above[j - 1] + (a[i - 1] != b[j - 1]);
			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two_above[j - 2] + 1 < best)
				best = two_above[j - 2] + 1;
			row[j] = best;
		}
	}
	return rows[n % 3][m];
}

const char *text_nearest(const char *text, const char *const *names, int count)
{
	const char *nearest = NULL;
	int least = (int)strlen(text) / 2 + 1;
	for (int i = 0; i < count; i++) {
		int d = edits(text, names[i]);
		if (d < least) {
			least = d;
			nearest = names[i];
		}
	}
	return nearest;
}

static char *scaled(char *buf, size_t room, double value, double base, const char *const *units, int count)
{
	int unit = 0;
	while (unit + 1 < count && fabs(value) >= base) {
		value /= base;
		unit++;
	}
	int decimals = unit == 0 && value == floor(value) ? 0 : fabs(value) < 10 ? 2 : fabs(value) < 100 ? 1 : 0;
	snprintf(buf, room, "%.*f%s%s", decimals, value, *units[unit] ? " " : "", units[unit]);
	return buf;
}

char *text_bytes(char *buf, size_t room, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	return scaled(buf, room, (double)bytes, 1024, units, 6);
}

char *text_si(char *buf, size_t room, double value)
{
	static const char *const units[] = {"", "k", "M", "G", "T", "P"};
	return scaled(buf, room, value, 1000, units, 6);
}

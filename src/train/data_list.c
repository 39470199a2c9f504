#include "train/data_list.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Cuts the blanks off both ends. */
static char *trimmed(char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	size_t n = strlen(text);
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	return text;
}

static void split_part(struct data_list *l, int i, char *part)
{
	char *colon = strchr(part, ':');
	double value;
	l->names[i] = part = trimmed(part);
	if (!colon)
		return;
	char *end = colon;
	while (end > part && isspace((unsigned char)end[-1]))
		end--;
	char kept = *end;
	*end = '\0';
	if (text_to_number(part, &value)) {
		l->weights[i] = part;
		l->names[i] = trimmed(colon + 1);
	} else {
		*end = kept; /* a colon in a path */
	}
}

static bool split(struct data_list *l, const char *key, const char *whole, struct error *e)
{
	int weighted = 0;
	char *rest = l->text, *part;
	for (int i = 0; i < l->count; i++) {
		part = strsep(&rest, ",");
		split_part(l, i, part);
		if (!*l->names[i])
			return error_set(e, CODE_USAGE, "%s = %s: entry %d names no file", key, whole, i + 1);
		weighted += l->weights[i] != NULL;
	}
	if (weighted != 0 && weighted != l->count)
		return error_set(e, CODE_USAGE,
				 "%s = %s: %d of %d entries have a weight: give all of them one, or none to join "
				 "them",
				 key, whole, weighted, l->count);
	return true;
}

bool data_list_init(struct data_list *l, const char *key, const char *text, struct error *e)
{
	*l = (struct data_list){.count = 1, .text = strdup(text ? text : "")};
	for (const char *c = l->text; *c; c++)
		l->count += *c == ',';
	l->names = calloc((size_t)l->count, sizeof *l->names);
	l->weights = calloc((size_t)l->count, sizeof *l->weights);
	if (!l->text || !l->names || !l->weights)
		die(CODE_MACHINE, "out of memory for the names in %s", key);
	if (split(l, key, text ? text : "", e))
		return true;
	data_list_finish(l);
	return false;
}

void data_list_finish(struct data_list *l)
{
	free(l->names);
	free(l->weights);
	free(l->text);
	*l = (struct data_list){0};
}

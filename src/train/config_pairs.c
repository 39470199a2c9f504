#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "train/config.h"

static const char *value_in(const struct config_pair *pairs, int count, const struct setting *s)
{
	char name[64];
	snprintf(name, sizeof name, "%s.%s", s->section, s->key);
	for (int i = 0; i < count; i++)
		if (strcmp(pairs[i].key, name) == 0)
			return pairs[i].value;
	return NULL;
}

bool config_take_model(struct config *c, const struct config_pair *pairs, int count, const char *whence,
		       struct error *e)
{
	static const char prefix[] = "model.";
	char reason[SETTING_REASON], now[SETTING_ROOM], then[SETTING_ROOM], where[512], name[64];
	for (int i = 0; i < count; i++) /* a model this program cannot build is not to be taken for one it can */
		if (strncmp(pairs[i].key, prefix, sizeof prefix - 1) == 0 &&
		    !setting_find("model", pairs[i].key + sizeof prefix - 1))
			return error_set(e, CODE_CHECKPOINT, "%s: has %s = %s, which this version does not know", whence,
					 pairs[i].key, pairs[i].value);
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		const char *value = value_in(pairs, count, s);
		struct config theirs = {0};
		if (strcmp(s->section, "model") != 0 || !value)
			continue;
		snprintf(name, sizeof name, "%s.%s", s->section, s->key);
		if (!config_given(c, name)) {
			struct error cause;
			if (!config_set(c, name, value, CODE_CHECKPOINT, &cause))
				return error_set(e, cause.code, "%s: %s", whence, cause.text);
			c->origin[i].source = CONFIG_CHECKPOINT;
			continue;
		}
		if (!setting_read(s, &theirs, value, reason))
			return error_set(e, CODE_CHECKPOINT, "%s: %s = %s: %s", whence, name, value, reason);
		const char *ours = setting_print(s, c, now);
		if (strcmp(ours, setting_print(s, &theirs, then)) != 0)
			return error_set(e, CODE_USAGE, "%s: %s = %s, but %s has %s: leave it out or make them agree",
					 config_where(c, name, where, sizeof where), name, ours, whence, value);
	}
	config_fill(c);
	return true;
}

void config_compare(const struct config *c, const struct config_pair *pairs, int count,
		    void (*f)(void *context, const struct setting *s, const char *now, const char *then),
		    void *context)
{
	for (int i = 0; i < setting_count; i++) {
		char buf[SETTING_ROOM];
		const struct setting *s = &setting_table[i];
		const char *then = value_in(pairs, count, s), *now = setting_print(s, c, buf);
		if (then && strcmp(s->section, "model") != 0 && strcmp(now, then) != 0)
			f(context, s, now, then);
	}
}

bool config_require(const struct config *c, const char *const *sections, struct error *e)
{
	char missing[512] = "";
	int count = 0;
	size_t n = 0;
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		bool asked = false;
		for (const char *const *section = sections; *section; section++)
			asked = asked || strcmp(s->section, *section) == 0;
		if (!asked || s->initial || c->origin[i].source != CONFIG_UNSET || n >= sizeof missing)
			continue;
		n += (size_t)snprintf(missing + n, sizeof missing - n, "%s%s.%s", count ? ", " : "", s->section,
				      s->key);
		count++;
	}
	if (count == 0)
		return true;
	return error_set(e, CODE_USAGE, "%s: %s %s required: write %s there, or use --set", c->path, missing,
			 count == 1 ? "is" : "are", count == 1 ? "it" : "them");
}

struct config_pair *config_pairs(const struct config *c, int *count)
{
	struct config_pair *pairs = calloc((size_t)setting_count, sizeof *pairs);
	*count = 0;
	for (int i = 0; pairs && i < setting_count; i++) {
		char buf[SETTING_ROOM], *key = NULL;
		const struct setting *s = &setting_table[i];
		if (c->origin[i].source == CONFIG_UNSET)
			continue;
		char *value = strdup(setting_print(s, c, buf));
		if (asprintf(&key, "%s.%s", s->section, s->key) < 0 || !value)
			die(CODE_MACHINE, "out of memory");
		pairs[(*count)++] = (struct config_pair){key, value};
	}
	if (!pairs)
		die(CODE_MACHINE, "out of memory");
	return pairs;
}

void config_free_pairs(struct config_pair *pairs, int count)
{
	for (int i = 0; pairs && i < count; i++) {
		free((char *)(uintptr_t)pairs[i].key);
		free((char *)(uintptr_t)pairs[i].value);
	}
	free(pairs);
}

bool config_write(const struct config *c, const char *path, struct error *e)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	if (!out)
		die(CODE_MACHINE, "out of memory");
	for (int i = 0; i < setting_count; i++) {
		char buf[SETTING_ROOM];
		const struct setting *s = &setting_table[i];
		const char *value = setting_print(s, c, buf);
		if (i == 0 || strcmp(s->section, setting_table[i - 1].section) != 0)
			fprintf(out, "%s[%s]\n", i == 0 ? "" : "\n", s->section);
		if (c->origin[i].source != CONFIG_UNSET)
			fprintf(out, "%s =%s%s\n", s->key, *value ? " " : "", value);
	}
	bool good = fclose(out) == 0 && file_replace(path, text, bytes, CODE_MACHINE, e);
	free(text);
	return good;
}

#include "train/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/inifile.h"

static char *copy(const char *text, size_t n)
{
	char *p = strndup(text, n);
	if (!p)
		die(CODE_MACHINE, "out of memory");
	return p;
}

static int index_of(const struct setting *s)
{
	return (int)(s - setting_table);
}

static const struct setting *named(const char *name)
{
	char section[32] = "";
	const char *dot = strchr(name, '.');
	check(dot && (size_t)(dot - name) < sizeof section);
	memcpy(section, name, (size_t)(dot - name));
	const struct setting *s = setting_find(section, dot + 1);
	check(s);
	return s;
}

/* Gives setting i this value. Fails: *reason. */
static bool assign(struct config *c, int i, const char *text, enum config_source source, int line,
		   char reason[SETTING_REASON])
{
	char *mine = copy(text, strlen(text));
	if (!setting_read(&setting_table[i], c, mine, reason)) {
		free(mine);
		return false;
	}
	free(c->origin[i].text);
	c->origin[i] = (struct config_origin){source, line, mine};
	return true;
}

static bool take(struct config *c, const char *where, const struct inifile_entry *entry, enum config_source source,
		 struct error *e)
{
	char hint[128], reason[SETTING_REASON];
	if (!*entry->section)
		return error_set(e, CODE_USAGE, "%s: '%s' stands before any [section]", where, entry->key);
	if (!setting_is_section(entry->section))
		return error_set(e, CODE_USAGE, "%s: unknown section [%s]%s", where, entry->section,
				 setting_hint_section(hint, sizeof hint, entry->section));
	const struct setting *s = setting_find(entry->section, entry->key);
	if (!s)
		return error_set(e, CODE_USAGE, "%s: unknown key '%s' in [%s]%s", where, entry->key, entry->section,
				 setting_hint_key(hint, sizeof hint, entry->section, entry->key));
	if (s->word && !*s->word && !*entry->value)
		return true; /* "vocab =" says nothing */
	if (!assign(c, index_of(s), entry->value, source, entry->line, reason))
		return error_set(e, CODE_USAGE, "%s: %s.%s = %s: %s", where, s->section, s->key, entry->value, reason);
	return true;
}

static bool take_line(void *context, const struct inifile_entry *entry, struct error *e)
{
	struct config *c = context;
	char where[PATH_ROOM + 16];
	snprintf(where, sizeof where, "%s:%d", c->path, entry->line);
	return take(c, where, entry, CONFIG_FILE, e);
}

/* Copies text[n] without white space at the ends. */
static char *trimmed(const char *text, size_t n)
{
	while (n > 0 && isspace((unsigned char)*text)) {
		text++;
		n--;
	}
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	return copy(text, n);
}

static bool take_option(struct config *c, const char *text, struct error *e)
{
	const char *equals = strchr(text, '=');
	const char *dot = equals ? memchr(text, '.', (size_t)(equals - text)) : NULL;
	if (!dot)
		return error_set(e, CODE_USAGE, "--set %s: must be section.key=value", text);
	char *section = trimmed(text, (size_t)(dot - text));
	char *key = trimmed(dot + 1, (size_t)(equals - dot - 1));
	char *value = trimmed(equals + 1, strlen(equals + 1));
	struct inifile_entry entry = {.section = section, .key = key, .value = value};
	bool good = take(c, "--set", &entry, CONFIG_OPTION, e);
	free(section);
	free(key);
	free(value);
	return good;
}

bool config_parse(struct config *c, const char *path, const char *text, size_t bytes, const char *const *sets,
		  int set_count, struct error *e)
{
	*c = (struct config){.path = copy(path, strlen(path))};
	bool good = inifile_read(path, text, bytes, take_line, c, e);
	for (int i = 0; good && i < set_count; i++)
		good = take_option(c, sets[i], e);
	if (good)
		config_fill(c);
	else
		config_finish(c);
	return good;
}

bool config_load(struct config *c, const char *path, const char *const *sets, int set_count, struct error *e)
{
	char *text;
	size_t bytes;
	*c = (struct config){0};
	if (!file_read(path, &text, &bytes, CODE_USAGE, e))
		return false;
	bool good = config_parse(c, path, text, bytes, sets, set_count, e);
	free(text);
	return good;
}

void config_finish(struct config *c)
{
	for (int i = 0; i < setting_count; i++)
		free(c->origin[i].text);
	free(c->path);
	*c = (struct config){0};
}

bool config_set(struct config *c, const char *name, const char *value, int code, struct error *e)
{
	char reason[SETTING_REASON];
	if (assign(c, index_of(named(name)), value, CONFIG_FOUND, 0, reason))
		return true;
	return error_set(e, code, "%s = %s: %s", name, value, reason);
}

bool config_given(const struct config *c, const char *name)
{
	enum config_source source = c->origin[index_of(named(name))].source;
	return source == CONFIG_FILE || source == CONFIG_OPTION;
}

char *config_where(const struct config *c, const char *name, char *buf, size_t room)
{
	static const char *const sources[] = {
		[CONFIG_UNSET] = "nowhere", [CONFIG_DEFAULT] = "the default", [CONFIG_OPTION] = "--set",
		[CONFIG_CHECKPOINT] = "the checkpoint", [CONFIG_FOUND] = "the data",
	};
	const struct config_origin *origin = &c->origin[index_of(named(name))];
	if (origin->source == CONFIG_FILE)
		snprintf(buf, room, "%s:%d", c->path, origin->line);
	else
		snprintf(buf, room, "%s", sources[origin->source]);
	return buf;
}

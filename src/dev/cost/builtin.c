#include "dev/cost/builtin.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

enum { MOST = 64 };

static const char *find(const char *folder, const char *name)
{
	for (const struct builtin *b = builtin_files; b->name; b++)
		if (strcmp(b->folder, folder) == 0 && strcmp(b->name, name) == 0)
			return b->text;
	return NULL;
}

static int names_of(const char *folder, const char *names[MOST])
{
	int count = 0;
	for (const struct builtin *b = builtin_files; b->name && count < MOST; b++)
		if (strcmp(b->folder, folder) == 0)
			names[count++] = b->name;
	return count;
}

/* "a, b, c". */
static char *listed(const char *const *names, int count, char *buf, int room)
{
	int at = 0;
	*buf = '\0';
	for (int i = 0; i < count && at < room; i++)
		at += snprintf(buf + at, (size_t)(room - at), i ? ", %s" : "%s", names[i]);
	return buf;
}

bool builtin_read(const char *folder, const char *name, const char **text, size_t *bytes, char **read, struct error *e)
{
	*read = NULL;
	*text = find(folder, name);
	*bytes = *text ? strlen(*text) : 0;
	if (*text)
		return true;
	if (!file_exists(name)) {
		const char *names[MOST];
		char list[600];
		int count = names_of(folder, names);
		const char *near = text_nearest(name, names, count);
		return error_set(e, CODE_USAGE, "--%s %s: there is no such file, and none of that name is built in%s%s%s (%s)", folder, name,
				 near ? "; did you mean " : "", near ? near : "", near ? "?" : "", listed(names, count, list, sizeof list));
	}
	if (!file_read(name, read, bytes, CODE_USAGE, e))
		return false;
	*text = *read;
	return true;
}

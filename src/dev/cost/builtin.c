#include "dev/cost/builtin.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { MOST = 64 };

const char *builtin_find(const char *folder, const char *name)
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

const char *builtin_nearest(const char *folder, const char *name)
{
	const char *names[MOST];
	int count = names_of(folder, names);
	return text_nearest(name, names, count);
}

char *builtin_list(const char *folder, char *buf, int room)
{
	const char *names[MOST];
	int count = names_of(folder, names), at = 0;
	*buf = '\0';
	for (int i = 0; i < count && at < room; i++)
		at += snprintf(buf + at, (size_t)(room - at), i ? ", %s" : "%s", names[i]);
	return buf;
}

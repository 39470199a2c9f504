#include "dev/tuning.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Lists are short: a hundred products at most. */
static struct tuning_choice *find(const struct tuning *t, const char *key)
{
	for (int i = 0; i < t->count; i++)
		if (strcmp(t->list[i].key, key) == 0)
			return &t->list[i];
	return NULL;
}

const char *tuning_find(const struct tuning *t, const char *key)
{
	const struct tuning_choice *c = find(t, key);
	return c ? c->value : NULL;
}

void tuning_set(struct tuning *t, const char *key, const char *value)
{
	struct tuning_choice *c = find(t, key);
	check(strlen(key) < TUNING_KEY && strlen(value) < TUNING_VALUE);
	if (!c) {
		t->list = realloc(t->list, (size_t)(t->count + 1) * sizeof *t->list);
		check(t->list);
		c = &t->list[t->count++];
	}
	memset(c, 0, sizeof *c); /* all of it travels */
	strcpy(c->key, key);
	strcpy(c->value, value);
}

void tuning_finish(struct tuning *t)
{
	free(t->list);
	*t = (struct tuning){0};
}

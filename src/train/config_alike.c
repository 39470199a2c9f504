#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/config.h"

/* How a rank computes and waits is its own. */
static bool may_differ(const struct setting *s)
{
	return strcmp(s->section, "device") == 0 || strcmp(s->section, "launch") == 0;
}

/* A line for each setting that may not differ, in table order. */
static char *lines_of(const struct config *c, size_t *bytes)
{
	char *text = NULL, value[SETTING_ROOM];
	FILE *out = open_memstream(&text, bytes);
	check(out);
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		if (!may_differ(s))
			fprintf(out, "%s.%s = %s\n", s->section, s->key,
				c->origin[i].source == CONFIG_UNSET ? "" : setting_print(s, c, value));
	}
	check(fclose(out) == 0);
	return text;
}

/* Cuts the next line off. */
static const char *next_line(char **text)
{
	const char *line = strsep(text, "\n");
	return line ? line : "";
}

bool config_alike(const struct config *c, struct comm *world, struct error *e)
{
	size_t bytes, first_bytes;
	char *own = lines_of(c, &bytes), *left = own;
	*e = (struct error){0};
	first_bytes = bytes;
	comm_host_broadcast(world, &first_bytes, sizeof first_bytes, 0);
	char *first = calloc(first_bytes + 1, 1), *first_left = first;
	check(first);
	memcpy(first, own, bytes < first_bytes ? bytes : first_bytes); /* on rank 0 all of it */
	comm_host_broadcast(world, first, first_bytes, 0);
	while (e->code == 0 && (left || first_left)) {
		const char *mine = next_line(&left), *theirs = next_line(&first_left);
		if (strcmp(mine, theirs) != 0)
			error_set(e, CODE_USAGE, "%s: %.200s on rank %d, but %.200s on rank 0: all ranks of a run need the same settings, but for "
				  "[device] and [launch]", c->path, mine, log_rank(), theirs);
	}
	free(own);
	free(first);
	return comm_agree(world, e);
}

#include "commands/commands.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "build-config.h"

enum { COMMANDS_MOST = 32 };

const struct command *commands_find(const char *name, struct error *e)
{
	const char *names[COMMANDS_MOST] = {0};
	int count = 0;
	for (const struct command *c = commands; c->name && count < COMMANDS_MOST; c++) {
		if (strcmp(c->name, name) == 0)
			return c;
		names[count++] = c->name;
	}
	const char *near = text_nearest(name, names, count);
	if (near)
		error_set(e, CODE_USAGE, "unknown command '%s'; did you mean '%s'?", name, near);
	else
		error_set(e, CODE_USAGE, "unknown command '%s'; `mtrain help` lists them", name);
	return NULL;
}

/* argv[0] becomes the command's name. */
static int run(const char *name, int argc, char **argv, struct error *e)
{
	char text[64];
	const struct command *c = commands_find(name, e);
	if (!c)
		return e->code;
	snprintf(text, sizeof text, "%s", c->name);
	argv[0] = text;
	return c->run(argc, argv, e);
}

int commands_run(int argc, char **argv, struct error *e)
{
	if (argc < 2)
		return run("help", argc, argv, e);
	const char *first = argv[1];
	if (strcmp(first, "-h") == 0 || strcmp(first, "--help") == 0)
		return run("help", argc - 1, argv + 1, e);
	if (strcmp(first, "--version") == 0) {
		printf("mtrain %s\n", MTRAIN_VERSION);
		return CODE_DONE;
	}
	if (first[0] == '-')
		return run("train", argc, argv, e);
	return run(first, argc - 1, argv + 1, e);
}

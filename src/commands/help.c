#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "commands/commands.h"
#include "commands/options.h"
#include "train/setting.h"

static const struct options options = {
	.usage = "mtrain help [settings|COMMAND]",
	.summary = "Says what mtrain can do, how a command is called, or which settings an INI file may have.",
	.most = 1,
};

static void print_all(void)
{
	printf("usage: mtrain --config FILE [--set section.key=value]...\n"
	       "       mtrain COMMAND ...\n\n"
	       "Trains GPT models on a mesh of data, tensor, context and pipeline parallel ranks, from one INI file.\n"
	       "Alone it is one rank; under `mpirun -n N` or `srun --mpi=pmix -n N` it is N.\n\n");
	for (const struct command *c = commands; c->name; c++)
		printf("  %-10s %s\n", c->name, c->summary);
	printf("\n`mtrain help settings` lists what the INI file may say, `mtrain help COMMAND` how a command is called;\n"
	       "`mtrain --version` says which one this is.\n");
}

int command_help(int argc, char **argv, struct error *e)
{
	char **topics, ask[] = "--help", name[64];
	int count;
	bool helped;
	if (!options_read(&options, NULL, argc, argv, &topics, &count, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	if (count == 0) {
		print_all();
		return CODE_DONE;
	}
	if (strcmp(topics[0], "settings") == 0) {
		setting_print_help(stdout);
		return CODE_DONE;
	}
	const struct command *c = commands_find(topics[0], e);
	if (!c && text_nearest(topics[0], (const char *const[]){"settings"}, 1))
		error_set(e, CODE_USAGE, "help: no topic '%s'; did you mean 'settings'?", topics[0]);
	if (!c)
		return e->code;
	snprintf(name, sizeof name, "%s", c->name);
	return c->run(2, (char *[]){name, ask, NULL}, e);
}

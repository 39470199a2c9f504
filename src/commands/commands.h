/* commands.h: what mtrain can be told to do: the list, and how a command line finds its command.
 *
 * A command reads its options, does its work and returns an exit code; when that is not 0 for a cause the user must be
 * told, *e has it, and main prints it once. `mtrain --config FILE` is short for `mtrain train --config FILE`.
 * Used by main, which has the list, and by help. */
#ifndef MTRAIN_COMMANDS_COMMANDS_H
#define MTRAIN_COMMANDS_COMMANDS_H

#include "base/error.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv, struct error *e); /* argv[0] is the command's name; answers --help itself */
	const char *summary;                                /* for `mtrain help` */
};

extern const struct command commands[]; /* main.c; ends with a NULL name */

/* Finds argv's command and runs it. Fails: CODE_USAGE: there is no such command. */
int commands_run(int argc, char **argv, struct error *e);

/* The command of that name, or *e with the nearest one. */
const struct command *commands_find(const char *name, struct error *e);

int command_calibrate(int argc, char **argv, struct error *e);
int command_help(int argc, char **argv, struct error *e);
int command_import(int argc, char **argv, struct error *e);
int command_inspect(int argc, char **argv, struct error *e);
int command_plan(int argc, char **argv, struct error *e);
int command_sample(int argc, char **argv, struct error *e);
int command_tokenize(int argc, char **argv, struct error *e);
int command_train(int argc, char **argv, struct error *e);

#endif

/* options.h: the options of one command, as a table: it reads them, and prints the help that describes them.
 *
 * Usage text and parser walk the same rows, so they cannot disagree. An option that is not in the table is answered
 * with the nearest that is. Values land in fields of the command's own struct. Used by commands. */
#ifndef MTRAIN_COMMANDS_OPTIONS_H
#define MTRAIN_COMMANDS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum option_type {
	OPTION_FLAG,   /* bool: becomes true */
	OPTION_TEXT,   /* const char * */
	OPTION_LIST,   /* struct option_list: may be given often */
	OPTION_COUNT,  /* int64_t: text_to_count */
	OPTION_NUMBER, /* double: text_to_number */
};

enum { OPTION_LIST_ROOM = 256 };
struct option_list {
	const char *texts[OPTION_LIST_ROOM];
	int count;
};

struct option_row {
	const char *name;     /* "config" for --config */
	const char *argument; /* what the value is called in the usage: FILE; NULL for a flag */
	enum option_type type;
	size_t offset;        /* of the field in the command's struct */
	bool required;
	const char *range;    /* COUNT and NUMBER: base/range.h; NULL for any */
	const char *help;
};

struct options {
	const char *usage;   /* of the whole command, the line that `help` prints: "mtrain sample --checkpoint DIR …" */
	const char *summary; /* what it does, one sentence or more */
	const struct option_row *rows;
	int count;
	int least, most;     /* operands */
};

/* Reads argv[1] … into the fields of *values, which hold the defaults. argv[0] is the command's name; operands may stand
 * anywhere and are moved behind the options: *operands points to them, *operand_count of them; both NULL for a
 * command that takes none.
 * With -h or --help the help is printed, *helped is true, and nothing else counts.
 * Fails: CODE_USAGE: an unknown option, a value missing or bad, a required option or an operand missing, one too many. */
bool options_read(const struct options *o, void *values, int argc, char **argv, char ***operands, int *operand_count,
		  bool *helped, struct error *e);

void options_print_help(const struct options *o);

#endif

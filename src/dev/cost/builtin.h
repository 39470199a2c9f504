/* builtin.h: the hardware and stack files of data/, which the build puts into the program. */
#ifndef MTRAIN_DEV_COST_BUILTIN_H
#define MTRAIN_DEV_COST_BUILTIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct builtin {
	const char *folder, *name; /* "hardware", "a100-80gb" */
	const char *text;
};

extern const struct builtin builtin_files[]; /* ends with a NULL name */

/* The text of a built-in name, or of a file; *read is NULL or for free(). The folder is the option's name too. Fails: CODE_USAGE: no
 * such name (with the nearest and all there are), or a file that cannot be read. */
bool builtin_read(const char *folder, const char *name, const char **text, size_t *bytes, char **read, struct error *e);

#endif

/* inputs.h: the files that INPUT arguments mean.
 *
 * A file is itself. A folder is every regular file below it, in byte order of their paths, with links to files
 * followed; links to folders are not entered, so a walk cannot go in circles. Names of one folder at a time are held
 * in memory, per level, so the size of the whole does not matter. Used by tokenize. */
#ifndef MTRAIN_COMMANDS_INPUTS_H
#define MTRAIN_COMMANDS_INPUTS_H

#include <sys/stat.h>

#include "base/error.h"

/* What was met inside folders and is no file: counted, so that the user can be told. */
struct inputs_skipped {
	long folder_links, dead_links, special; /* special: sockets, pipes, devices */
};

/* What happens to each file, in order. st: of the file itself, not of a link to it. Returns false to end the walk. */
typedef bool inputs_visit(void *context, const char *path, const struct stat *st, struct error *e);

/* Visits the files of one INPUT; a link given as INPUT is followed. Adds to *skipped.
 * Fails: CODE_DATA: missing, neither file nor folder, a folder that cannot be read; or what visit said. */
bool inputs_walk(const char *path, inputs_visit *visit, void *context, struct inputs_skipped *skipped,
		 struct error *e);

#endif

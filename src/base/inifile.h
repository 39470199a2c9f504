/* inifile.h: an INI file as a stream of settings, each with the line it stands on.
 *
 * inih parses. This adds what it lacks as distributions build it: line numbers for every setting, lines of any length,
 * and errors that say where, also of a key that is set a second time. Lines are `[section]` or `key = value`; `;` after white space and `#` or `;` at the start
 * of a line begin a comment; white space around anything is dropped, so a value cannot go on in the next line.
 *
 * Used by config and by hardware and stack files. */
#ifndef MTRAIN_BASE_INIFILE_H
#define MTRAIN_BASE_INIFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct inifile_entry {
	const char *section; /* "" before the first */
	const char *key, *value;
	int line;
};

/* Calls f for each setting of text[bytes], in order, until it returns false with *e filled. `path` is for messages.
 * Fails: CODE_USAGE with path:line: a line that is no setting, a key given twice, a byte 0; or as f does. */
bool inifile_read(const char *path, const char *text, size_t bytes,
		  bool (*f)(void *context, const struct inifile_entry *entry, struct error *e), void *context,
		  struct error *e);

/* Whether a value comes back from a file as it was written: no control characters, nothing that begins a comment, no
 * white space at the ends. */
bool inifile_can_hold(const char *value);

#endif

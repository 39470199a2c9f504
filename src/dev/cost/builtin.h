/* builtin.h: the hardware and stack files of data/, which the build puts into the program. */
#ifndef MTRAIN_DEV_COST_BUILTIN_H
#define MTRAIN_DEV_COST_BUILTIN_H

struct builtin {
	const char *folder, *name; /* "hardware", "a100-80gb" */
	const char *text;
};

extern const struct builtin builtin_files[]; /* ends with a NULL name */

/* The text, or NULL. */
const char *builtin_find(const char *folder, const char *name);

/* The name nearest to one that is not there, or NULL. */
const char *builtin_nearest(const char *folder, const char *name);

/* All names of a folder, "a, b, c". Returns buf. */
char *builtin_list(const char *folder, char *buf, int room);

#endif

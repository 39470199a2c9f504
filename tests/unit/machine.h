/* machine.h: a hardware file for tests: one text as the base of another, which says what differs.
 *
 * Used by tests of the planner and of its search. */
#ifndef MTRAIN_TESTS_MACHINE_H
#define MTRAIN_TESTS_MACHINE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dev/cost/hardware.h"

/* As hardware_load, of files in /tmp that are gone again. */
static inline bool machine_load(struct hardware *h, const char *base, const char *more, struct error *e)
{
	char paths[2][32] = {"/tmp/mtrain-machine-XXXXXX", "/tmp/mtrain-machine-XXXXXX"};
	for (int i = 0; i < 2; i++) {
		FILE *f = fdopen(mkstemp(paths[i]), "w");
		check(f);
		if (i == 0)
			fputs(base, f);
		else
			fprintf(f, "[hardware]\nbase = %s\n%s", paths[0], more);
		fclose(f);
	}
	bool good = hardware_load(h, paths[1], e);
	unlink(paths[0]);
	unlink(paths[1]);
	return good;
}

#endif

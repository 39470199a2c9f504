/* timeline.h: a predicted step as a trace that Perfetto and Chrome show: a process a stage, a track a queue.
 *
 * Written to the end in memory and put into its place whole, so a plan that fails leaves nothing behind. */
#ifndef MTRAIN_PLAN_TIMELINE_H
#define MTRAIN_PLAN_TIMELINE_H

#include <stdio.h>

#include "plan/simulate.h"

struct timeline {
	FILE *text;
	char *data;
	size_t size;
	bool first;
};

void timeline_open(struct timeline *t);

/* For simulate_options.box. */
void timeline_box(void *context, const struct simulated_box *b);

/* Writes the file and frees all. Fails: CODE_USAGE, when the path cannot be written. */
bool timeline_close(struct timeline *t, const char *path, int stages, struct error *e);

#endif

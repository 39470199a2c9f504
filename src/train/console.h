/* console.h: what a person sees of a run: a summary at the start, then how far it is.
 *
 * On a terminal one line with a bar and the time left is kept up to date; elsewhere (a file, a pipe, a batch job) there
 * is one plain line every log.every steps. mpirun gives its ranks a pseudo-terminal whatever its own output is, so a
 * terminal without a size is only believed if the parent process has a real one.
 *
 * Owns the state of the line. Used by rank 0's training loop; on other ranks it is NULL, which every function takes. */
#ifndef MTRAIN_TRAIN_CONSOLE_H
#define MTRAIN_TRAIN_CONSOLE_H

#include <stddef.h>
#include <stdint.h>

#include "dev/memory.h"
#include "train/config.h"
#include "train/metrics.h"

struct console_summary {
	const struct config *config;
	const struct mesh *mesh;
	const int64_t *stage_layers; /* [pipeline·chunks] */
	int64_t parameters;
	const struct memory *memory; /* of rank 0 */
	size_t workspace;            /* the device's own, beside it */
	const char *recomputed;      /* what rank 0 computes again in backward */
	const char *device;
};

/* Prints it: model, batch, mesh and stages, precision, device, memory by kind, what is computed again. */
void console_summary(const struct console_summary *s);

struct console;

/* `step` attempts of `steps` are behind it; a plain line every `every` steps. */
struct console *console_open(int64_t step, int64_t steps, int64_t every);
void console_close(struct console *c);

void console_step(struct console *c, const struct metrics_step *line);
void console_eval(struct console *c, int64_t step, double loss);

/* One line for a step, without a newline: with a bar and as much as goes into `width` columns, or for width 0 the plain
 * form. seconds_left < 0: not known yet. Needs: 1 ≤ step ≤ steps. Returns buf. */
enum { CONSOLE_ROOM = 512 };
char *console_line(char buf[CONSOLE_ROOM], int width, const struct metrics_step *line, int64_t steps,
		   double seconds_left);

#endif

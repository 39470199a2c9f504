/* simulate.h: a step of all pipeline stages, played from their records.
 *
 * Every other axis is symmetric, so one rank a stage stands for all: items run in order on their queues, wait for the marks
 * that the real step waits for, and are not begun before the host has launched them. An exchange's transfer begins when both ends have
 * come to it; a collective that crosses the pipeline when all stages have. Computing beside a collective is slowed down.
 *
 * The step is played twice, and the second one counts: it begins while what the first has queued last, say weights that are
 * gathered, is still on its way.
 *
 * A rank's time is where its compute queue is: computing, or standing idle for what the next item waits for. Idle time behind
 * a transfer is the pipeline's as long as the transfer itself takes, else bubble.
 *
 * Used by the planner. */
#ifndef MTRAIN_PLAN_SIMULATE_H
#define MTRAIN_PLAN_SIMULATE_H

#include "dev/cost/record.h"
#include "plan/timing.h"

enum cause { CAUSE_COMPUTE, CAUSE_TENSOR, CAUSE_CONTEXT, CAUSE_PIPELINE, CAUSE_DATA, CAUSE_BUBBLE, CAUSE_OPTIMIZER, CAUSES };

const char *simulate_cause(enum cause c);

struct simulated_stage {
	double seconds[CAUSES]; /* together the step's */
	double end;             /* when it was done, from the step's begin */
};

/* One box of the timeline. */
struct simulated_box {
	int stage;
	enum queue queue;
	const char *name;
	int chunk, micro; /* of a stretch; −1: not one */
	double begin, end;
};

struct simulate_options {
	const struct timing *timing;
	const struct record *const *records; /* [stages] */
	int stages;
	bool alone; /* every stage as if the others were always there: no bubble */
	void (*box)(void *context, const struct simulated_box *b); /* NULL: no timeline */
	void *context;
};

/* Seconds of the step; stages [stages] is filled. */
double simulate(const struct simulate_options *o, struct simulated_stage *stages);

#endif

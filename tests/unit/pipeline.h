/* pipeline.h: plays the action lists of all ranks of a pipeline against one another, for tests of the schedule.
 *
 * Each rank has a queue for computing and one for exchanges. A send ends only with its receive; an exchange ends with
 * all its transfers, and only then may the rank's next one begin. While playing, every rule of train/schedule.h is
 * asserted: nothing waits for ever, each micro-batch once and in order, no place used before it is free, every tensor
 * where it is looked for, waits exactly as long as needed. Made of the lists alone, not of how they came about. */
#ifndef MTRAIN_TESTS_UNIT_PIPELINE_H
#define MTRAIN_TESTS_UNIT_PIPELINE_H

#include "train/schedule.h"

enum { PIPELINE_STAGES = 12, PIPELINE_MICROS = 40, PIPELINE_CHUNKS = 4 };

/* Time that things take. A backward takes input and weight. */
struct pipeline_costs {
	int forward, input, weight; /* of a chunk */
	int transfer;               /* from when both sides have begun */
	bool synchronous;           /* computing waits for every exchange queued before it */
};

/* A computing action as it was played. */
struct pipeline_span {
	const struct action *action; /* of the rank's list */
	int start, end;
};

struct pipeline_rank {
	struct schedule list;
	struct pipeline_span spans[PIPELINE_MICROS * PIPELINE_CHUNKS * 3];
	int span_count;
	int in_flight; /* pairs at most, between forward and the end of backward */
	int waiting;   /* of them, at most, between the parts of backward */
};

struct pipeline {
	struct schedule_options options; /* stage means nothing */
	struct pipeline_rank ranks[PIPELINE_STAGES];
	int end; /* when the last action ended */
};

/* Makes and plays the lists. The result is valid until the next call. */
const struct pipeline *pipeline_play(const struct schedule_options *o, const struct pipeline_costs *costs);

#endif

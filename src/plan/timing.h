/* timing.h: how long an item of a record takes, with the group that it concerns where the mesh puts it.
 *
 * The times themselves are dev/cost/times.h's; this adds what they cannot know: which ranks of a group share a node, and what a
 * stack's other way means for one item.
 *
 * Used by the simulation. */
#ifndef MTRAIN_PLAN_TIMING_H
#define MTRAIN_PLAN_TIMING_H

#include "dev/cost/times.h"
#include "par/mesh.h"

struct timing {
	const struct hardware *hardware;
	const struct stack *stack;
	const struct mesh *mesh;
	bool rows_split;      /* stages send each other a rank's share of the rows as it is: sequence parallelism */
	bool half_gradients;  /* gradients are summed in 16 bits */
	bool attention_again; /* backward computes unfused attention once more */
};

/* Seconds of an item alone. An exchange: 0, see timing_transfer. */
double timing_item(const struct timing *t, const struct record_item *item);

/* Seconds of one transfer of an exchange between two stages. */
double timing_transfer(const struct timing *t, int stage, int peer, double bytes);

#endif

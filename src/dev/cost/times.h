/* times.h: how long an item of a record takes alone, on a piece of hardware, with the kernels of a stack.
 *
 * Pure functions, in seconds. Used by the simulation, which knows the mesh and so where a group lies. */
#ifndef MTRAIN_DEV_COST_TIMES_H
#define MTRAIN_DEV_COST_TIMES_H

#include "dev/cost/hardware.h"
#include "dev/cost/record.h"
#include "dev/cost/stack.h"

/* An op or a copy. */
double times_op(const struct hardware *h, const struct stack *s, const struct record_item *item);

/* A collective. */
double times_collective(const struct hardware *h, const struct stack *s, const struct record_item *item, struct hardware_group g);

/* One activation or its gradient from stage to stage, of `tensor` ranks each. */
double times_exchange(const struct hardware *h, const struct stack *s, bool same_node, int tensor, double bytes);

/* Attention alone, forward, as `heads` products over whole rows of scores and passes over these: what selective recompute of
 * an unfused stack repeats. Backward: without that. */
double times_unfused(const struct hardware *h, const struct stack *s, enum dtype t, int64_t sequence, int64_t heads,
		     int64_t head_size, bool backward);

#endif

/* schedule_order.h: in which order each rank of a pipeline computes, and when, at unit cost. schedule.c places
 * exchanges by it; nobody else needs it. Owns its arrays.
 *
 * The order is one rule. Number the forwards of a rank as groups of `stages` micro-batches that go through chunk 0,
 * then chunk 1, …; backwards likewise, from the last chunk down. Then for k = 0, 1, …: forward k, backward k − ahead
 * and, if backwards are split, weight part k − ahead − held, whichever of them exist. The kinds differ in ahead and
 * held alone. */
#ifndef MTRAIN_TRAIN_SCHEDULE_ORDER_H
#define MTRAIN_TRAIN_SCHEDULE_ORDER_H

#include "train/schedule.h"

/* A forward, an input part and a weight part take this long each. */
enum { SCHEDULE_UNIT = 2 };

/* A forward or backward (part) and when it runs. */
struct schedule_work {
	enum action_kind kind;
	int chunk, micro;
	int start, end;
};

struct schedule_order {
	struct schedule_options options;
	int transfer;                    /* how long a transfer takes: what the kind can hide (schedule_order_make) */
	struct schedule_work *works;     /* of the rank options.stage, in order; kept inside `all` */
	int count;                       /* of works */
	struct schedule_work *all;       /* of every rank */
	int *forward_end, *backward_end; /* [stages·chunks, micros]: by virtual stage; backward: its input part */
};

/* Orders and times the works of all ranks; each begins when its rank is free and what it needs from others is there.
 * A transfer takes as long as the kind's slots can hide behind computing, whatever the number of micro-batches:
 * interleaved a unit, zero-bubble half a unit. In 1F1B neighbours wait for one another in turn, and forward has but
 * one slot: they hide nothing, and a transfer takes no time. */
void schedule_order_make(struct schedule_order *order, const struct schedule_options *o);
void schedule_order_finish(struct schedule_order *order);

/* When the forward of a micro-batch on a virtual stage ends, and the (input part of the) backward. */
int schedule_order_forward_end(const struct schedule_order *order, int virtual, int micro);
int schedule_order_backward_end(const struct schedule_order *order, int virtual, int micro);

#endif

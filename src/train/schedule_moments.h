/* schedule_moments.h: which tensors a rank of the pipeline sends and receives, and to which moment of the order each
 * transfer belongs. schedule.c makes exchanges of them; nobody else needs it.
 *
 * Both sides of a transfer know the same moment, and all ranks sort by the same rule: that keeps their exchanges from
 * waiting in a circle. */
#ifndef MTRAIN_TRAIN_SCHEDULE_MOMENTS_H
#define MTRAIN_TRAIN_SCHEDULE_MOMENTS_H

#include "train/schedule_order.h"

struct schedule_moment {
	int time;                        /* when the tensor is made; 1F1B: and the receiver's slot is free */
	int lower;                       /* the virtual stage on the lower side of the boundary */
	struct action_transfer transfer; /* its buffer is not chosen yet */
};

struct schedule_moments {
	struct schedule_moment *list; /* by time, boundary kind, lower, micro */
	int count;
};

/* The transfers of the rank order->options.stage. */
void schedule_moments_find(struct schedule_moments *m, const struct schedule_order *order);
void schedule_moments_finish(struct schedule_moments *m);

#endif

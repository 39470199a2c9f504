/* schedule.h: what a pipeline stage does in a step, as a list of actions: plain data, a pure function.
 *
 * 1F1B (Narayanan et al. 2019/2021): a stage runs as many forwards ahead as there are stages behind it, then one
 * backward after each forward, so that at most stages − stage micro-batches are in flight. step.c carries the
 * actions out; tests play all stages' lists against one another. */
#ifndef MTRAIN_TRAIN_SCHEDULE_H
#define MTRAIN_TRAIN_SCHEDULE_H

#include <stdbool.h>

enum action_kind { ACTION_FORWARD, ACTION_BACKWARD, ACTION_EXCHANGE };

enum { ACTION_NONE = -1 };

struct action {
	enum action_kind kind;
	int micro; /* FORWARD, BACKWARD: the micro-batch */
	int slot;  /* where it is kept */
	/* EXCHANGE: micro-batches whose activations go to the next stage and come from the previous one, whose
	 * gradients go to the previous stage and come from the next one; ACTION_NONE: nothing there. One grouped call. */
	int send_activation, receive_activation, send_gradient, receive_gradient;
};

struct schedule {
	struct action *actions;
	int count;
	int slots; /* micro-batches in flight at most */
};

/* The list for `stage` of `stages` and `micros` micro-batches. slots = min(stages − stage, micros); micro-batch m is
 * kept in slot m mod slots. */
void schedule_1f1b(struct schedule *s, int stage, int stages, int micros);

/* Forward only, for evaluation: slot 0 serves every micro-batch. */
void schedule_forward(struct schedule *s, int stage, int stages, int micros);

void schedule_finish(struct schedule *s);

#endif

/* simulate_rank.h: one rank of a simulation: its queues, where it is in its record, and what it waits for.
 *
 * Marks count items, so a rank remembers for each queue when which item was done. Inside of simulate.c. */
#ifndef MTRAIN_PLAN_SIMULATE_RANK_H
#define MTRAIN_PLAN_SIMULATE_RANK_H

#include "plan/simulate.h"

/* Items up to `count` of a queue are done at `end`. */
struct done {
	uint64_t count;
	double end;
};

struct rank_queue {
	uint64_t queued;
	double end;           /* of the last item */
	double ready;         /* the next item may not begin before */
	enum cause cause;     /* that the wait is for */
	double own;           /* of a wait for other ranks, how much is the transfer's own time … */
	enum cause own_cause; /* … and whose */
	bool crossed;         /* the last item was one that crosses the pipeline */
	double last_own;      /* and took this long by itself */
	double busy_begin;    /* since when it has been busy without a gap */
	struct done *done;    /* ascending */
	int count, room;
};

/* A stretch without exchanges and sums over data ranks, once played alone. */
struct closed {
	bool known, is;
	double seconds, host;
	double cause[CAUSES];
};

struct rank {
	const struct simulate_options *o;
	const struct record *record;
	int stage;
	double *seconds;        /* [items] */
	struct closed *closed;  /* [spans], by the first of those that are alike */
	int span, event;        /* next */
	struct rank_queue queue[QUEUES];
	uint64_t base[QUEUES];  /* items before this span */
	double host;
	int pass;               /* 0: the step before, 1: the one that counts */
	double begin;           /* of that */
	double spent[CAUSES];
	bool optimizer;         /* the stretches are over */

	/* An item on the pipe queue, or a collective that crosses the pipeline, that waits for other ranks. */
	const struct record_item *pending;
	double pending_begin;
	int message[RECORD_TRANSFERS]; /* number of each transfer between its two ranks */
};

void rank_open(struct rank *r, const struct simulate_options *o, int stage);
void rank_close(struct rank *r);

/* Goes on to the end of the record, or to the first item or wait that needs other ranks; true: it is through. */
bool rank_run(struct rank *r);

/* When computing and the host are done. */
double rank_end(const struct rank *r);

/* The pending item is over: it lasted until `end`, `own` of it by itself. */
void rank_resolve(struct rank *r, double end, double own);

/* Whether an item concerns other stages. */
bool rank_crosses(const struct record_item *item);

#endif

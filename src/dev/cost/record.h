/* record.h: what a step queues on a device, written down instead of done.
 *
 * Items (ops, copies, calls of comms) and waits are kept as events in the order in which the host queued them. Stretches
 * of a step that are alike (device.h) are recorded once: the program of a step is a list of spans of events, and a
 * stretch that comes a thousand times is a thousand spans over the same events. A wait names its mark by the items queued
 * before the span began, so it means the same in each of them.
 *
 * Plain data, owned by the counting device (cost.h). Used by it, by the counting transport (comm/count.c), by the ledger
 * and the planner. */
#ifndef MTRAIN_DEV_COST_RECORD_H
#define MTRAIN_DEV_COST_RECORD_H

#include "dev/device.h"
#include "dev/op_cost.h"

enum record_kind { RECORD_OP, RECORD_COPY, RECORD_COMM };

enum { RECORD_TRANSFERS = 8 };

struct record_item {
	enum record_kind kind;
	enum queue queue;
	int what;               /* OP: enum op_id; COMM: enum comm_call */
	const char *name;       /* "gemm", "copy", "all-reduce" */
	struct op_cost cost;    /* COMM: bytes of the tensors as comm_count counts them, and how many of them again */
	enum dtype dtype;       /* compute type of the op, or of what is moved */
	int64_t m, n, k;        /* gemm: as there; attention: T, heads times samples, D; else 0 */
	bool from_host, to_host; /* COPY */

	/* COMM */
	const char *group;
	int ranks; /* of the group */
	int transfers;
	struct record_transfer {
		int peer; /* rank in the group */
		bool send;
		double bytes;
	} transfer[RECORD_TRANSFERS];
};

enum record_event_kind { EVENT_ITEM, EVENT_WAIT, EVENT_FINISH };

struct record_event {
	enum record_event_kind kind;
	int item;         /* ITEM */
	enum queue queue; /* WAIT: that waits */
	enum queue on;    /* WAIT, FINISH (the host waits): … for the items before the mark on this queue */
	int64_t count;    /* the mark: so many items behind the span's begin on `on`; may be negative */
};

struct record_span {
	struct stretch stretch; /* name NULL: between stretches */
	int begin, end;         /* events */
	int64_t items[QUEUES];  /* that it queues */
};

struct record {
	struct record_item *items;
	int item_count, item_room;
	struct record_event *events;
	int event_count, event_room;
	struct record_span *spans; /* the program of the step */
	int span_count, span_room;

	uint64_t queued[QUEUES]; /* items so far: marks count these */
	uint64_t base[QUEUES];   /* as the open span began */
	bool open;               /* the last span is still written to */
};

void record_init(struct record *r);
void record_finish(struct record *r);

/* As dev_begin and dev_end. */
bool record_begin(struct record *r, const struct stretch *s);
void record_end(struct record *r);

void record_add(struct record *r, const struct record_item *item);
void record_wait(struct record *r, enum queue q, struct mark m);
void record_host_waits(struct record *r, struct mark m);

/* Calls f for each item of the program, as often as the step queues it. */
void record_each(const struct record *r, void (*f)(void *context, const struct record_item *item), void *context);

#endif

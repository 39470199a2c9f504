/* queue.h: communication that has been queued on a CPU device and not yet happened.
 *
 * Computing happens at once in the calling thread, so only communication is ever pending: one list of work a queue,
 * pushed forward in order, without blocking, whenever the host comes by (queues_poll). A mark is a count of posted
 * items, so a wait is a comparison. A wait of one communication queue for another is queued itself (a gate), so the
 * host goes on; a wait of the compute queue holds the host, since there the host is the queue.
 *
 * Owns no memory but the gates. Used by cpu.c. One host thread only. */
#ifndef MTRAIN_DEV_CPU_QUEUE_H
#define MTRAIN_DEV_CPU_QUEUE_H

#include "dev/backend.h"

enum { QUEUE_GATES = 64 };

struct queues;

struct gate {
	struct work work; /* first, so that a work is its gate */
	struct queues *queues;
	struct mark mark;
	bool used;
};

struct queues {
	struct {
		struct work *head, *tail;
		uint64_t posted, done;
	} list[QUEUES];
	struct gate gates[QUEUE_GATES];
	bool polling; /* an item's advance may come back here */
};

/* Puts w at the end of q. On Q_COMPUTE it is brought to its end at once, within `timeout` as in queues_finish. */
void queues_post(struct queues *s, enum queue q, struct work *w, double timeout);

/* Advances every queue as far as it goes without blocking. Cheap when nothing is queued. */
void queues_poll(struct queues *s);

/* What is queued on q so far. */
struct mark queues_mark(const struct queues *s, enum queue q);

/* What is posted on q from now on waits for m. Holds the host for Q_COMPUTE, or when all gates are in use. */
void queues_wait(struct queues *s, enum queue q, struct mark m, double timeout);

/* Holds the host until everything before m is done, advancing all queues, with naps in between once that takes long. After
 * `timeout` seconds (0: never) the process ends with CODE_PEER and the call and group of the item that holds up. */
void queues_finish(struct queues *s, struct mark m, double timeout);

#endif

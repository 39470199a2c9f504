/* count.h: a transport that moves nothing and records every call on a counting device (dev/cost/).
 *
 * One process is any rank of any job. Since nobody else is there, a group's size and this rank's place in it come from whoever
 * knows the mesh (par/groups.h). Host-side calls give what they would if every rank said the same.
 *
 * Used by the ledger and the planner, and by tests of layouts that no machine here could start. */
#ifndef MTRAIN_COMM_COUNT_H
#define MTRAIN_COMM_COUNT_H

#include "comm/comm.h"

/* rank and size in the group of that name. */
struct count_layout {
	void (*place)(const void *context, const char *name, int *rank, int *size);
	const void *context;
};

extern const struct transport transport_count;

/* The world on a device of backend_cost; the layout, and what it points to, must live as long. */
bool count_open(struct comm **world, struct device *dev, int rank, int size, const struct count_layout *layout,
		struct error *e);

#endif

/* transport.h: what a way of moving data between ranks must give; the other side of comm.h.
 *
 * All entries are mandatory. comm.c has checked types, shapes, sizes and ranks. The calls on tensors put work on the
 * device's queue (dev_post, or the device library's own streams) and return at once; the host's block. */
#ifndef MTRAIN_COMM_TRANSPORT_H
#define MTRAIN_COMM_TRANSPORT_H

#include "comm/comm.h"
#include "dev/backend.h"

struct comm {
	const struct transport *transport;
	struct device *dev;
	struct comm *parent; /* NULL: the world */
	const char *name;
	int rank, size;
	struct comm_count count;
	void *impl;
};

struct transport {
	const char *name;
	bool (*open)(struct comm *world, struct error *e); /* rank, size, dev are set; sets impl */
	bool (*split)(struct comm *child, int color, int key, struct error *e); /* parent, dev, name are set; sets rank, size, impl */
	void (*close)(struct comm *c);
	void (*all_reduce)(struct comm *c, enum queue q, struct tensor t);
	void (*all_gather)(struct comm *c, enum queue q, struct tensor out, struct tensor in);
	void (*reduce_scatter)(struct comm *c, enum queue q, struct tensor out, struct tensor in);
	void (*broadcast)(struct comm *c, enum queue q, struct tensor t, int root);
	void (*exchange)(struct comm *c, enum queue q, const struct transfer *transfers, int count);
	void (*host_gather)(struct comm *c, void *out, const void *in, size_t bytes);
	void (*host_broadcast)(struct comm *c, void *data, size_t bytes, int root);
};

extern const struct transport transport_self; /* one rank: copies */
extern const struct transport transport_mpi;
extern const struct transport transport_nccl; /* cuda/nccl.c */

#endif

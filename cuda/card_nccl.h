/* card_nccl.h: the inside of transport_nccl, shared by its files.
 *
 * NCCL's calls stand on the queue's own stream, so each axis has its own and the host waits for none of them. Every rank
 * has a card of its own. Communicators are made eagerly, one after the other in the order of the program, without sharing
 * resources, and each runs an all-reduce and a ring of sends before it is used, since connections are lazy. Launches are
 * kept in the host's order over all communicators (NCCL 2.26 and later), which is the same on all ranks of a group.
 *
 * All calls are non-blocking: what is under way is polled, with the device's time limit. While the host waits for the card
 * it looks at NCCL's own errors; when the wait is too long, the oldest call that has not ended is named. On a bad end
 * all communicators are aborted, so that no card waits for this one.
 *
 * Sums are NCCL's: on every rank the same bits, and in every run on the same machines where algorithm and protocol are
 * pinned; F16 and BF16 may be rounded at each rank on their way. */
#ifndef MTRAIN_CUDA_CARD_NCCL_H
#define MTRAIN_CUDA_CARD_NCCL_H

#include <nccl.h>

#include "card.h"
#include "comm/transport.h"

enum {
	NCCL_ROOM = 1 << 20, /* bytes of a host-side call that are on the card at once */
	NCCL_CALLS = 64,     /* of a queue that are remembered */
};

/* What a queue was last given. */
struct nccl_call {
	const char *call, *group;
	cudaEvent_t ended;
};

struct nccl_world {
	char *room, *pinned; /* [NCCL_ROOM] on the card and on the host */
	struct nccl_call calls[QUEUES][NCCL_CALLS];
	uint64_t called[QUEUES];
	double looked; /* seconds, when errors were last looked for */
};

/* impl of a comm. */
struct nccl_group {
	ncclComm_t nccl;
	const char *name;
	struct nccl_world *world;
	struct nccl_group *next; /* of all that are open */
};

/* Dies unless the call went well or is under way. */
void nccl_must(ncclResult_t rc, ncclComm_t nccl, const char *call, const char *group);

/* Waits until what is under way on a communicator has been taken on. */
void nccl_settle(struct device *dev, ncclComm_t nccl, const char *call, const char *group);

/* A group of a communicator that has been made: lists it and warms it up. */
void nccl_group_open(struct comm *c, ncclComm_t nccl, struct nccl_world *world);
void nccl_group_close(struct comm *c);

/* The device's watch. */
void nccl_watch(struct device *dev, bool late);

/* Notes a call of queue q that has just been queued, once NCCL has taken it on. */
void nccl_called(struct comm *c, enum queue q, const char *call);

#endif

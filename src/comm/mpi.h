/* mpi.h: the inside of transport_mpi, shared by its files.
 *
 * Every call becomes a work (dev/backend.h) that the device's queue pushes forward: it posts Isend and Irecv, comes
 * back later to test them, adds what has come (sum.h), and posts the next round. Nothing blocks, so works on several
 * queues move at once, and the queue's clock covers them all.
 *
 * One lane a queue: only the first work of a queue advances, so the lane's requests and its scratch are that work's
 * alone. Long tensors go in rounds that fit the scratch, which is taken once. Works come from a pool that grows to
 * the greatest number ever queued at once.
 *
 * Matching: a message carries the queue and the kind of call as its tag. So matching calls must be on the same queue
 * on every rank, and works on different queues of one comm cannot mix.
 *
 * A device whose memory is apart (a card) has its tensors copied to the host and back by the same queue, a piece that fits
 * the lane's stage at a time (mpi_stage.c): down, the work on the host's copy, up. The host waits for none of it.
 *
 * Open MPI sends to ranks on the same machine by shared memory. All MPI calls are made by the thread that opened. */
#ifndef MTRAIN_COMM_MPI_H
#define MTRAIN_COMM_MPI_H

#include <mpi.h>

#include "comm/transport.h"

enum {
	LANE_SCRATCH = 2 << 20,    /* bytes a lane receives what is to be added in; also bounds a round */
	LANE_STAGE = 4 << 20,      /* bytes of a call that are on the host at once, for devices with memory apart */
	AT_ONCE = 2048,       /* bytes up to which an all-reduce sends everything to everybody in one round */
	ROUND_MAX = 1 << 28,      /* elements of one message */
};

enum mpi_kind {
	KIND_ALL_REDUCE, KIND_ALL_GATHER, KIND_REDUCE_SCATTER, KIND_BROADCAST, KIND_EXCHANGE,
	KIND_HOST_GATHER, KIND_HOST_BROADCAST, KINDS
};

struct mpi_lane {
	int pending, room;
	MPI_Request *requests; /* [room] */
	MPI_Status *statuses;  /* [room] */
	int64_t *expected;     /* [room] bytes that must come; −1: a send */
	const void **inputs;   /* [world size] for sum_ranks */
	char *scratch;         /* [LANE_SCRATCH] */
	char *stage;           /* [LANE_STAGE] of the device's host memory; NULL: the device has no memory apart */
};

struct mpi_world {
	struct mpi_lane lanes[QUEUES];
	struct mpi_work *pool;
};

/* impl of a comm. */
struct mpi_group {
	MPI_Comm mpi;
	struct mpi_world *world;
};

struct mpi_work {
	struct work base;
	struct comm *comm;
	enum mpi_kind kind;
	enum queue queue;
	struct tensor out, in;
	int root, count;
	struct transfer transfers[EXCHANGE_MAX];
	int phase;     /* of the round */
	int64_t at;    /* elements done before this round */
	int64_t round; /* elements of this round */
	struct mpi_work *next_free;
};

/* Dies with the call's name unless rc is MPI_SUCCESS. */
void mpi_must(int rc, const char *call, const char *group);

/* The calls on host memory. */
void mpi_host_all_reduce(struct comm *c, enum queue q, struct tensor t);
void mpi_host_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in);
void mpi_host_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in);
void mpi_host_broadcast(struct comm *c, enum queue q, struct tensor t, int root);
void mpi_host_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count);

/* The same on memory apart. */
void mpi_stage_all_reduce(struct comm *c, enum queue q, struct tensor t);
void mpi_stage_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in);
void mpi_stage_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in);
void mpi_stage_broadcast(struct comm *c, enum queue q, struct tensor t, int root);
void mpi_stage_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count);

/* A work from the pool, its call filled in; mpi_post queues it. */
struct mpi_work *mpi_work_take(struct comm *c, enum queue q, enum mpi_kind kind);
void mpi_post(struct mpi_work *w);

/* Pushes a work forward: the `advance` of each kind. */
bool mpi_advance(struct work *base);

#endif

/* comm.h: moving and summing tensors between ranks, as callers see it.
 *
 * A comm is one group of ranks as seen from one of them. Every call is collective over the group and queued: it
 * runs on queue q after what is on q already, and the caller orders it against computing with dev_mark/dev_wait. A
 * comm never computes a layer. Calls take tensors, so a count can never disagree with a type. Matching calls are on
 * the same queue, in the same order, on every rank; calls on different queues do not stand in each other's way. A group
 * of one needs nothing moved: its calls are local copies and are not counted. Empty tensors are no calls.
 *
 * Sums of F16 and BF16 are added in FP32, those of F32 in FP32, of F64 in FP64, in rank order, rounded once: the
 * result has the same bits on every rank, and does not depend on time or message size. NCCL keeps less of that: cuda/card_nccl.h.
 *
 * Comms own their connections, not the tensors. Used by model and train, and by whoever agrees on something between
 * ranks. A transport (transport.h) does the work; comm.c checks. A comm is made once, in an agreed order, before step 1. */
#ifndef MTRAIN_COMM_COMM_H
#define MTRAIN_COMM_COMM_H

#include "base/error.h"
#include "base/tensor.h"
#include "dev/device.h"

struct comm;
struct transport;

/* All ranks of the job, over a transport. rank and size come from the launcher (launch.h).
 * Fails: CODE_USAGE, when the transport cannot work under this launcher; alike on every rank, and there is no comm to
 * agree over, so one rank should tell it. What goes wrong on one rank alone is a `die`. */
bool comm_open(struct comm **world, const struct transport *transport, struct device *dev, int rank, int size,
	       struct error *e);

/* Splits a comm: ranks with the same color form a group, ordered by key; color −1: in no group (*out = NULL).
 * `name` ("tensor", "data", …) is for messages and must be a literal. Collective over the parent. */
bool comm_split(struct comm **out, struct comm *parent, const char *name, int color, int key, struct error *e);

/* Collective. NULL is fine. The world is closed last. */
void comm_close(struct comm *c);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_name(const struct comm *c);

/* t = Σ over ranks, in place. */
void comm_all_reduce(struct comm *c, enum queue q, struct tensor t);

/* out [size · in's first dimension, …]: the ranks' inputs one behind the other. in may lie in its place in out. */
void comm_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in);

/* out = this rank's slice of Σ over ranks of in. Needs: size divides in's first dimension. */
void comm_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in);

/* t of rank root everywhere. */
void comm_broadcast(struct comm *c, enum queue q, struct tensor t, int root);

/* One grouped point-to-point call: all sends and receives of the list run together, so no order between neighbours
 * can deadlock. Messages between the same two ranks match in list order. */
enum { EXCHANGE_MAX = 8 };
struct transfer {
	int peer; /* rank in this comm */
	enum { TRANSFER_SEND, TRANSFER_RECEIVE } kind;
	struct tensor tensor;
};
void comm_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count);

/* What has gone through this comm: tests count collectives and bytes with it. Bytes are those of the tensors named
 * in the calls: of the larger one where there are two (all that is gathered, all that is reduced), of all transfers of an
 * exchange. Host-side calls are not counted. */
enum comm_call { COMM_ALL_REDUCE, COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_BROADCAST, COMM_EXCHANGE, COMM_CALLS };
struct comm_count {
	int64_t calls[COMM_CALLS];
	int64_t bytes[COMM_CALLS];
};
struct comm_count comm_count(const struct comm *c);

/* Host-side calls, for set-up and checkpoints: block (with the device's time-out), on host memory.
 * comm_host_gather: out [size·bytes]: every rank's `bytes` bytes, in rank order, on every rank. */
void comm_host_gather(struct comm *c, void *out, const void *in, size_t bytes);
void comm_host_broadcast(struct comm *c, void *data, size_t bytes, int root);
void comm_barrier(struct comm *c);

/* Whether any rank's function failed: every rank calls with its own error (code 0: fine). If some failed, every
 * rank's *e becomes that of the lowest failed rank, and false is returned on all. */
bool comm_agree(struct comm *c, struct error *e);

#endif

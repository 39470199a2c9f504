/* device.h: where tensors live and work is queued, as callers see it.
 *
 * A device has memory, one queue for computing and one for each axis of communication, and one struct of scalars
 * that changes from step to step (scalars.h). Work on one queue runs in order; between queues only two calls order
 * anything: `dev_mark(q)` remembers what is queued on q so far, `dev_wait(q, mark)` makes what is queued on q from
 * now on wait for that and for no more. On CUDA a mark is an event; on the CPU computing happens at once, and a mark
 * counts communications.
 *
 * A device owns its memory and queues. Used by everything above base. Implementers: backend.h. */
#ifndef MTRAIN_DEV_DEVICE_H
#define MTRAIN_DEV_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/tensor.h"
#include "dev/scalars.h"
#include "dev/tuning.h"

/* One queue an axis, so that a tensor reduction never stands behind a pipeline receive that waits for a neighbour. */
enum queue { Q_COMPUTE, Q_TENSOR, Q_CONTEXT, Q_PIPE, Q_DATA, Q_COPY, QUEUES };

const char *queue_name(enum queue q);

struct mark {
	enum queue queue;
	uint64_t count; /* items queued before it */
};

/* The largest shapes that ops will be called with; a backend sizes its one workspace from them, and every call is
 * checked against them. */
struct dev_limits {
	int64_t rows;      /* N: tokens of a micro-batch on this rank */
	int64_t width;     /* widest row of any matrix: max of C, F, qkv width, head block's vocabulary */
	int64_t head_size; /* D */
	int64_t tensors;   /* parameter tensors on this rank */
	/* Pairs of queries and keys of attention that a library may compute (16 bits, whole sequences, no dropout, no biases):
	 * B·H·T² of a call, G·T² of one KV group; 0: there is none. */
	double scores, group_scores;
};

struct dev_options {
	int threads; /* of this rank; 0: all cores this process may run on */
	bool plain;  /* the defining column of ops even where a fast one exists */
	/* CPU: "generic", "avx2" or "avx512" for the fast ops; NULL: the best that this processor has. Machines of
	 * different kinds in one run give the same bits only with the same set. */
	const char *instructions;
	bool graphs; /* CUDA: the work of a stretch is launched as graphs */
	double timeout; /* seconds that a wait may take before the run ends; 0: no limit */
	int local_rank, local_size; /* among the ranks of this machine: choose the card; size 0: 1 */
};

struct device;
struct backend;

/* Opens a device of a backend (backends.h lists them). Fails: CODE_MACHINE with the cause. */
bool dev_open(struct device **dev, const struct backend *backend, const struct dev_options *options, struct error *e);
void dev_close(struct device *dev);

/* Takes the ops' workspace for calls within the limits; before it no op may be called. Once. Fails: CODE_MACHINE. */
bool dev_reserve(struct device *dev, const struct dev_limits *limits, struct error *e);

/* Changes the limit on waits: start-up and steps have different ones. */
void dev_set_timeout(struct device *dev, double seconds);

const char *dev_name(const struct device *dev);         /* "cpu (2 threads, avx512)" */
int dev_threads(const struct device *dev);              /* 0 where it means nothing */
double dev_peak_flops(const struct device *dev, enum dtype compute); /* dense FLOP/s as a datasheet would say; 0: not known */
size_t dev_workspace(const struct device *dev);         /* bytes that the ops use inside */
size_t dev_room(const struct device *dev);              /* bytes that were free when it was opened; 0: not known */

/* Memory for an arena, zeroed, aligned to 4096. Fails: CODE_MACHINE, naming the bytes. */
bool dev_take(struct device *dev, void **out, size_t bytes, struct error *e);
void dev_give_back(struct device *dev, void *memory);

/* While it is on, everything is brought to its end before the host goes on where the first call of a kind may hold the device.
 * False: this device has no such first calls, and nothing to choose; nothing is on. */
bool dev_rehearse(struct device *dev, bool on);

/* Adds how the device computes what it was asked for so far, where it has a choice. What it was not told it tries, and with
 * timed it times it, on the memory of the calls, which it spoils. Blocks. Between rehearsals only. */
void dev_choose(struct device *dev, struct tuning *own, bool timed);

/* What the device takes from now on where it has a choice. */
void dev_told(struct device *dev, const struct tuning *choices);

struct mark dev_mark(struct device *dev, enum queue q);
void dev_wait(struct device *dev, enum queue q, struct mark m);

/* The host waits until everything before the mark is done. */
void dev_finish(struct device *dev, struct mark m);

/* False: it only counts what is queued, and what is written to it need not be there. */
bool dev_computes(const struct device *dev);

/* Copies queued on q. Host memory must stay as it is until a mark after the call is finished. */
void dev_write(struct device *dev, enum queue q, struct tensor to, const void *from_host);
void dev_read(struct device *dev, enum queue q, void *to_host, struct tensor from);
void dev_copy(struct device *dev, enum queue q, struct tensor to, struct tensor from); /* same type and count */
void dev_zero(struct device *dev, enum queue q, struct tensor t);

/* A stretch of a step. Stretches of one name, chunk and variant are alike: they queue the same work on other data. */
struct stretch {
	const char *name; /* "forward", … a literal */
	int chunk, micro; /* of the model, of the step; 0 where it means nothing */
	int variant;
};

/* Begins one; true: carry it out and end it. The counting device (cost/) records each kind once: for one that it has, it
 * says false, and the caller leaves it out. They do not nest. */
bool dev_begin(struct device *dev, const struct stretch *s);
void dev_end(struct device *dev);

/* Whether what is queued from now on computes again what was thrown away. Counted, nothing else. */
void dev_again(struct device *dev, bool again);

/* The scalars in device memory (ops read them there), and queued copies to and from the host. */
struct scalars *dev_scalars(struct device *dev);
void dev_write_scalars(struct device *dev, enum queue q, const struct scalars *from_host);
void dev_read_scalars(struct device *dev, enum queue q, struct scalars *to_host);

#endif

/* plan.h: what a run of these settings would take on a piece of hardware: memory of each stage, seconds of a step and what
 * they go for.
 *
 * The real build code and the real step run on the counting device for one rank of each pipeline stage (train/counted.h);
 * their records are timed (timing.h) and played against one another (simulate.h).
 *
 * Owns what it has counted. Used by the plan command and by the search. */
#ifndef MTRAIN_PLAN_PLAN_H
#define MTRAIN_PLAN_PLAN_H

#include "plan/simulate.h"
#include "train/ledger.h"

struct plan_stage {
	int64_t layers;
	struct ledger ledger;
	int64_t without_cudnn; /* what ledger.workspace would be if mtrain were built without cuDNN */
	int64_t overhead; /* bytes beside what the run takes: driver, libraries, buffers of the groups */
	int64_t total;
	struct simulated_stage time;
};

struct plan {
	const struct config *config;
	const struct hardware *hardware;
	const struct stack *stack;
	bool attention_again; /* timing.h */
	struct mesh mesh; /* rank 0's */
	int stages;
	struct plan_stage *stage; /* [stages] */
	int fullest, slowest;     /* stages */
	int64_t memory_limit;     /* bytes, overhead and all */
	int64_t memory_own;       /* without the overhead of the stage that has most */
	bool memory_set;          /* by device.memory */
	bool fits;
	int64_t parameters;       /* of the whole model */
	double step_seconds, tokens_per_second, tflops_per_device, mfu, hardware_utilization; /* the last: with what is computed again */
	double seconds[CAUSES];   /* mean over stages */
	double bubble_fraction;   /* of the step */
};

struct plan_options {
	struct config *config; /* as config_load left it; data, device.memory and what the stack changes are written to it */
	const struct hardware *hardware;
	const struct stack *stack;
	int64_t devices; /* 0: as many as the mesh needs at least */
	int64_t memory;  /* bytes that a rank may take, as device.memory; 0: what the device has beside the overhead */
	void (*box)(void *context, const struct simulated_box *b); /* NULL: no timeline */
	void *context;
};

/* Fails: CODE_USAGE: settings missing or not fitting one another, devices that the mesh does not divide, a compute type that
 * the hardware does not have. */
bool plan_make(struct plan *p, const struct plan_options *o, struct error *e);
void plan_finish(struct plan *p);

/* Whether the stack keeps and sums gradients in 16 bits. */
bool plan_half_gradients(const struct plan *p);

/* What items take in this plan. */
struct timing plan_timing(const struct plan *p);

/* Groups of several ranks that a rank is in. ends: of the first or last of several stages, with a tied embedding. */
int plan_groups(const struct mesh *m, bool ends);

/* Bytes that are not the trainer's own, with so many groups. */
int64_t plan_overhead(const struct plan_options *o, int groups);

/* The parts of plan_make, for the search: settings and mesh; one stage's memory, ledger and record, for record_finish; record
 * NULL: memory alone. */
bool plan_prepare(struct plan *p, const struct plan_options *o, struct error *e);
bool plan_count_stage(struct plan *p, const struct plan_options *o, int stage, struct record *record, struct error *e);

/* Bytes of calls a step on the group of this name, of the stage that has most. */
int64_t plan_traffic(const struct plan *p, const char *group);

#endif

/* env.h: what every part of the model stands on: the device, the tensor group, the shapes of a micro-batch.
 *
 * One per rank, made by gpt.c; the parts keep a pointer. It also holds the one piece of communication that all
 * layers share: the sum over tensor ranks, begun on its own queue so that computing can go on beside it. */
#ifndef MTRAIN_MODEL_ENV_H
#define MTRAIN_MODEL_ENV_H

#include "comm/comm.h"
#include "dev/memory.h"
#include "model/param.h"

struct env {
	struct device *dev; /* NULL while memory is measured */
	struct comm *tensor; /* NULL while memory is measured */
	int tensor_size, tensor_rank;
	const struct model_settings *model;
	struct param_table *params;
	enum dtype dtype;  /* T, compute type */
	int64_t batch;     /* B: samples of a micro-batch */
	int64_t tokens;    /* N = B·T */
	uint64_t seed;
};

/* Where a dropout mask sits: site = 8·layer + kind (rng.h). */
enum dropout_kind { DROPOUT_EMBEDDING, DROPOUT_ATTENTION, DROPOUT_ATTENTION_OUT, DROPOUT_MLP_OUT };

/* How a micro-batch is passed: its samples, and whether anything is dropped. */
struct pass {
	int64_t sample;  /* of its first sequence, counted from the first of the step */
	bool training;   /* false: evaluation, nothing is dropped */
};

struct dropout env_dropout(const struct env *env, const struct pass *pass, int64_t layer, enum dropout_kind kind);

/* Begins t = Σ over tensor ranks on the tensor queue, after what is computed so far. Computing that reads t must wait for the
 * mark with env_sum_end; with one tensor rank both do nothing. */
struct mark env_sum_begin(const struct env *env, struct tensor t);
void env_sum_end(const struct env *env, struct mark m);

/* An activation [N, columns] in the compute type. */
struct tensor env_rows(const struct env *env, struct memory *memory, enum memory_kind kind, int64_t columns);

#endif

/* env.h: what every part of the model stands on: the device, the tensor group, the shapes of a micro-batch.
 *
 * One per rank, made by gpt.c; the parts keep a pointer. It also holds the communication that all layers share. Between
 * the linears of a layer the residual stream is either whole on every tensor rank, or, with sequence parallelism
 * (Korthikanti et al. 2022), each rank has N/tensor of the micro-batch's N rows and does norms, dropout and residuals for
 * those alone. A partial sum [N, C] then ends in a reduce-scatter to rows instead of an all-reduce, and a column-parallel
 * linear's input is gathered first.
 *
 * Both run on the tensor queue, chunk by chunk of the N rows, so that one chunk is on its way while the product of
 * another one is computed. A rank's share of the rows is a piece of each chunk, in order: what is gathered from the
 * i-th pieces is chunk i, and what is reduced of chunk i are the i-th pieces. How many chunks there are follows from the
 * shape alone; without overlap each call is waited for at once, and nothing else changes.
 *
 * With context parallelism the tokens of each sample are spread over context ranks before all that: N counts those here, and
 * only attention knows of the others (attention.h). */
#ifndef MTRAIN_MODEL_ENV_H
#define MTRAIN_MODEL_ENV_H

#include "comm/comm.h"
#include "dev/memory.h"
#include "model/param.h"

/* At most so many chunks, of at least so many rows: a product of fewer would not keep a card busy. */
enum { ENV_CHUNKS = 4, ENV_CHUNK_ROWS = 256 };

struct env {
	struct device *dev; /* NULL while memory is measured */
	struct comm *tensor; /* NULL while memory is measured */
	int tensor_size, tensor_rank;
	struct comm *context; /* NULL while memory is measured */
	int context_size, context_rank;
	const struct model_settings *model;
	struct param_table *params;
	enum dtype dtype;  /* T, compute type */
	int64_t batch;     /* B: samples of a micro-batch */
	int64_t length;    /* tokens of a sample here: T/context */
	int64_t tokens;    /* N = B·length */
	bool sequence;     /* sequence parallelism */
	int64_t rows;      /* rows of the residual stream here: N, or N/tensor */
	bool whole;        /* one chunk */
	int chunks;        /* of the N rows; 1 on one tensor rank */
	bool overlap;      /* computing goes on beside communication */
	uint64_t seed;
	struct tensor rope;     /* S [T, R], rotary positions: cosines and sines; else left out */
	struct tensor slopes;   /* S [H/tp], linear biases of the heads here (alibi.h); else left out */
	struct tensor gathered; /* [N, C], sequence parallelism: a whole input, until the next gather */
	struct tensor partial;  /* [N, C], sequence parallelism: a partial sum, until it is reduced */
};

/* Where a dropout mask sits: site = 8·layer + kind (rng.h). */
enum dropout_kind { DROPOUT_EMBEDDING, DROPOUT_ATTENTION, DROPOUT_ATTENTION_OUT, DROPOUT_MLP_OUT };

/* A backward has two parts: the gradient of the input, which others wait for, and those of the linears' weights and
 * biases, which nobody waits for. Whatever else has a gradient belongs to the input part. */
enum backward_parts { BACKWARD_INPUT = 1, BACKWARD_WEIGHT = 2, BACKWARD_BOTH = BACKWARD_INPUT | BACKWARD_WEIGHT };

/* How a micro-batch is passed: its samples, and whether anything is dropped. */
struct pass {
	int64_t sample;  /* of its first sequence, counted from the first of the step */
	bool training;   /* false: evaluation, nothing is dropped */
	bool last;       /* training: of its chunk's micro-batches in the step, so its gradients are the last to be added */
};

/* Which tokens of each sample a context rank has: of 2·context chunks the rank-th from either end. sample: the span's. */
struct span env_share(const struct env *env, int context_rank, int64_t sample);

struct dropout env_dropout(const struct env *env, const struct pass *pass, int64_t layer, enum dropout_kind kind);

/* What is gathered, and when each chunk of it is there. */
struct gathered {
	struct tensor whole; /* [N, C] */
	int chunks;          /* 1 where nothing had to be gathered */
	struct mark there[ENV_CHUNKS];
};

/* The whole of x [rows, C] over tensor ranks: begun after what is computed so far. `whole` is x itself where that is whole
 * already, else env.gathered; computing that reads a chunk of it must wait for the chunk's mark with env_wait. */
struct gathered env_gather_begin(const struct env *env, struct tensor x);

/* The same, waited for. */
struct tensor env_gather(const struct env *env, struct tensor x);

/* Chunk i of `chunks` of a tensor [N, …] or [rows, …]. */
struct tensor env_chunk(struct tensor t, int i, int chunks);

/* Where a partial sum that ends as out [rows, C] is to be computed: out itself, or env.partial. */
struct tensor env_partial(const struct env *env, struct tensor out);

/* Begins out [rows, C] = this rank's rows of Σ over tensor ranks of the tensor that env_partial gave, for chunk i of
 * env.chunks, whose part of the partial sum has been computed. Chunks go in order. Computing that reads out, or computes
 * the next partial sum, must wait for the mark of the last chunk. */
struct mark env_reduce_chunk(const struct env *env, struct tensor out, int i);

/* The same for all chunks. */
struct mark env_reduce_begin(const struct env *env, struct tensor out);

/* The same, waited for. */
void env_reduce(const struct env *env, struct tensor out);

void env_wait(const struct env *env, struct mark m);

/* Sets chunks; takes gathered, partial and the tables of rope and alibi, and fills those two. Needs: what stands before
 * rows, and rows. */
void env_build(struct env *env, struct memory *memory);

/* An activation in the compute type: [rows, columns], split as the residual stream is. */
struct tensor env_rows(const struct env *env, struct memory *memory, enum memory_kind kind, int64_t columns);

/* [N, columns], whole micro-batch. */
struct tensor env_tokens(const struct env *env, struct memory *memory, enum memory_kind kind, int64_t columns);

#endif

/* param.h: the table of parameters: every one of the whole model, in one order, on every rank.
 *
 * The table is a pure function of the model's settings. Initial values, the optimizer, the gradient norm, checkpoints and
 * error messages walk it; none of them knows a layer. An entry says what is true everywhere (name, global shape,
 * decay, how it starts, which dimension tensor ranks share) and, where the parameter is on this rank, its memory.
 *
 * The parameters of a layer lie together in a bucket, and so do those before the first layer and behind the last one:
 * what is done to weights or gradients of many parameters at once is done bucket by bucket. Where a parameter lies in its
 * bucket follows from the layer's parameters alone, not from which other layers are on this rank.
 *
 * Names and shapes are listed in data/parameters.md; they are what a checkpoint holds. */
#ifndef MTRAIN_MODEL_PARAM_H
#define MTRAIN_MODEL_PARAM_H

#include "dev/memory.h"
#include "model/settings.h"
#include "par/box.h"

enum { PARAM_NAME = 64, PARAM_WHOLE = -1, VOCAB_MULTIPLE = 128 };

/* Elements that every parameter and every slice of a bucket begins at a multiple of: 256 bytes in 16 bits, so that no
 * kernel and no choice of one depends on where in memory a bucket lies. */
enum { PARAM_ALIGN = 128 };

struct param {
	char name[PARAM_NAME];
	int dims;
	int64_t shape[TENSOR_DIMS]; /* global, unpadded; 1 past dims */
	int split;                  /* dimension that tensor ranks share, or PARAM_WHOLE */
	int64_t layer;              /* −1: before the first block, L: behind the last */
	bool decay;                 /* weight decay: matrices, embeddings, positions */
	double std;                 /* starts as N(0, std) … */
	double fill;                /* … or, with std 0, as this value */

	bool here;             /* on this rank; what follows is set then */
	bool owner;            /* of all ranks with the same data coordinate, this one counts and saves it */
	struct box box;        /* the part that is here, without padding; may be empty */
	int bucket;            /* of the table's buckets */
	int64_t at;            /* its first element there */
	struct tensor weight;  /* compute type, with padded rows behind the box */
	struct tensor grad;    /* sum type, same shape; left out in a frozen table */
};

/* Each parameter in table order, first those that every tensor rank has whole, then the others; padding between and
 * behind them. A copy of the token table is alone in one. */
struct param_bucket {
	int64_t layer;         /* as of the parameters */
	bool copy;
	int64_t whole;         /* leading elements of the parameters that every tensor rank has whole */
	struct tensor weights; /* compute type [elements] */
	struct tensor grads;   /* sum type [elements]; left out in a frozen table */
};

struct param_table {
	struct param *params;
	int count;
	int tensor, tensor_rank; /* how wide the split is and which share is here */
	enum dtype dtype;        /* compute type */
	struct param_bucket *buckets; /* those on this rank, in the order of their first param_use */
	int bucket_count;
	int next;                /* where param_use looks first: models ask in about the order of the table */
	/* Set after param_table_init, where they are to be others. */
	bool frozen;             /* only looked at: no gradients are taken; false */
	int slices;              /* equal parts that every bucket can be cut into; 1 */
};

/* Lists every parameter of the model; nothing is here yet. */
void param_table_init(struct param_table *t, const struct model_settings *m, enum dtype dtype, int tensor,
		      int tensor_rank);
void param_table_finish(struct param_table *t);

/* Rows of a vocabulary matrix, padded to a multiple of 128·tensor. */
int64_t param_padded_vocab(int64_t vocab, int tensor);

/* Gives the named parameter its place on this rank and returns its entry; the first of a bucket takes the bucket's memory.
 * copy: another stage has it too and owns it (the tied output head). */
struct param *param_use(struct param_table *t, struct memory *memory, bool copy, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The name alone; NULL if there is no such parameter. */
const struct param *param_find(const struct param_table *t, const char *name);

/* Elements of the whole model. */
int64_t param_total(const struct param_table *t);

/* Initial values of elements begin … begin+count of the box (row-major) into out: a function of seed, name and
 * global position alone. */
void param_initial(const struct param *p, uint64_t seed, int64_t begin, int64_t count, float *out);

#endif

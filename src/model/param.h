/* param.h: the table of parameters: every one of the whole model, in one order, on every rank.
 *
 * The table is a pure function of the model's settings. Initial values, the optimizer, the gradient norm, checkpoints and
 * error messages walk it; none of them knows a layer. An entry says what is true everywhere (name, global shape,
 * decay, how it starts, which dimension tensor ranks share) and, where the parameter is on this rank, its memory.
 *
 * Names and shapes are listed in data/parameters.md; they are what a checkpoint holds. */
#ifndef MTRAIN_MODEL_PARAM_H
#define MTRAIN_MODEL_PARAM_H

#include "dev/memory.h"
#include "model/settings.h"
#include "par/box.h"

enum { PARAM_NAME = 64, PARAM_WHOLE = -1, VOCAB_MULTIPLE = 128 };

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
	struct tensor weight;  /* compute type, with padded rows behind the box */
	struct tensor grad;    /* sum type, same shape; left out in a frozen table */
};

struct param_table {
	struct param *params;
	int count;
	int tensor, tensor_rank; /* how wide the split is and which share is here */
	enum dtype dtype;        /* compute type */
	bool frozen;             /* only looked at: no gradients are taken (set after param_table_init) */
};

/* Lists every parameter of the model; nothing is here yet. */
void param_table_init(struct param_table *t, const struct model_settings *m, enum dtype dtype, int tensor,
		      int tensor_rank);
void param_table_finish(struct param_table *t);

/* Rows of a vocabulary matrix, padded to a multiple of 128·tensor. */
int64_t param_padded_vocab(int64_t vocab, int tensor);

/* Takes memory for the named parameter on this rank and returns its entry. copy: another stage has it too and owns
 * it (the tied output head). */
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

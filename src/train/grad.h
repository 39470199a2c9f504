/* grad.h: from each rank's gradients to one verdict: sums over ranks, the global norm, skip or update.
 *
 * Gradients are summed bucket by bucket (model/param.h), each as soon as the last micro-batch has made it final: with
 * sequence parallelism first the part of it that every tensor rank has whole is added over tensor ranks, each of which saw
 * a part of the rows; the tied embedding's two copies are added (first and last stage); then the bucket is summed over data
 * ranks in FP32: all of it on each of them, or of a sharded optimizer each one's slice alone. With overlap all of that goes
 * on beside the rest of backward, without it computing waits each time: same calls, same order, same bits.
 *
 * Then each parameter's owner squares its part in FP64; slices of one parameter are added over data ranks. One sum over the
 * world carries loss, token count, a stop request and all squares: every square has one contributor, so the sum is exact,
 * and adding them in parameter-table order gives a norm whose bits do not depend on the pipeline. A value that is not finite
 * anywhere is seen by every rank alike. */
#ifndef MTRAIN_TRAIN_GRAD_H
#define MTRAIN_TRAIN_GRAD_H

#include "model/gpt.h"
#include "par/groups.h"
#include "train/slices.h"

enum grad_total { TOTAL_LOSS, TOTAL_TOKENS, TOTAL_STOP, TOTALS };

struct grad {
	struct device *dev;
	const struct groups *groups;
	const struct param_table *params;
	const struct slices *slices;
	const struct param *tied; /* this rank's copy of a token table that both ends hold; NULL: none */
	bool partial;             /* gradients of whole parameters are partial sums over tensor ranks */
	bool first_copy;          /* of the ranks that hold the same weights this one is the first */
	bool overlap;
	bool *reduced;            /* [buckets] in this step; the sums may still be on their way */
	struct step_rules rules;
	struct tensor vector;     /* F64 [TOTALS + params·tensor]: the totals, then a square sum for each share of each parameter */
	struct tensor *owned;     /* pieces of gradients that this rank squares */
	int64_t *slots;           /* and their places behind the totals */
	int64_t count;
};

struct grad_options {
	struct device *dev; /* NULL while measuring */
	const struct groups *groups;
	const struct param_table *params; /* as filled by gpt_build */
	const struct slices *slices;
	const struct model_settings *model;
	struct step_rules rules;
	bool partial;    /* sequence parallelism is on */
	bool ends;       /* the token table is on another stage too */
	bool overlap;    /* computing goes on beside the sums */
};

void grad_build(struct grad *g, const struct grad_options *o, struct memory *memory);
void grad_finish(struct grad *g);

/* The totals at the head of the vector: step_train and step_evaluate add to them. */
struct tensor grad_totals(const struct grad *g);

/* Begins the sums of a bucket: what is queued so far makes its gradients final. Collective over the ranks that have it. */
void grad_final(struct grad *g, int bucket);

/* Sums what is left, waits, and lets the device judge (op step_verdict). `stop`: this rank asks for a stop. Collective over the world.
 * After it TOTAL_STOP is the number of ranks that asked. */
void grad_reduce(struct grad *g, bool stop);

/* Sums the totals alone, for evaluation, and gives them; `stop` as above. Blocks. */
void grad_totals_reduce(struct grad *g, bool stop, double totals[TOTALS]);

/* The totals after grad_reduce. Blocks. */
void grad_totals_read(struct grad *g, double totals[TOTALS]);

/* "layers.3.mlp.up.weight, tensor rank 1" for a verdict's first_bad. Returns buf. */
char *grad_bad_name(const struct grad *g, int64_t first_bad, char *buf, size_t room);

#endif

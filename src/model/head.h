/* head.h: the final norm, the output head and the loss, forward and backward in one go.
 *
 * Logits are as wide as the vocabulary, so they never exist for all tokens: the head runs in blocks of rows, each
 * block's logits become their own gradient in place (three loss ops, with one gather of maximum, sum and target
 * between tensor ranks), and only the gradient of the stage's last activation is kept. So the last stage's forward
 * action does the head's backward as well. The head's rows are split over tensor ranks like the token embedding's,
 * whose table it may share.
 *
 * With normalized_head (Baichuan 2, Yang et al. 2023) logits are products with the weight's rows scaled to length 1. They are
 * scaled once for each micro-batch, and the gradient of the scaled rows is summed over its blocks before it goes through
 * the scaling's backward into the parameter's, which a tied embedding adds to as well. */
#ifndef MTRAIN_MODEL_HEAD_H
#define MTRAIN_MODEL_HEAD_H

#include "model/norm.h"

struct head {
	const struct env *env;
	struct norm norm;
	struct param *weight; /* [V, C], padded rows of this rank; the token table when tied */
	int64_t first;        /* vocabulary id of column 0 of the logits here */
	int64_t valid;        /* true vocabulary columns here */
	int64_t block;        /* rows of a block */

	/* scratch */
	struct tensor unit;    /* [V/tp, C], normalized_head: the weight's rows, scaled by … */
	struct tensor scale;   /* S [V/tp] */
	struct tensor dunit;   /* S [V/tp, C]: a micro-batch's gradient of unit; left out in a frozen model */
	struct norm_saved saved;
	struct tensor normed;  /* [rows, C] */
	struct tensor dnormed; /* [rows, C] */
	struct tensor logits;  /* [block, V/tp] */
	struct tensor stats;   /* S [tp, block, 3] */
	struct tensor lse;     /* S [block] */
	struct tensor losses;  /* S [N] */
};

/* token: the token table's entry when the head is tied and the embedding is on this rank too, else NULL. */
void head_build(struct head *h, const struct env *env, struct memory *memory, struct param *token);

/* Losses of x [rows, C] against targets I32 [N] (−1: masked), added to totals F64 [≥ 2] = {Σ loss, tokens} on tensor rank 0.
 * Training: also d [rows, C] = gradient of x for a loss scale of scalars.loss_scale/T a token, and the head's and norm's
 * parameter gradients. Evaluation: d is left alone. */
void head_loss(const struct head *h, struct tensor x, struct tensor targets, struct tensor totals, struct tensor d,
	       const struct pass *pass);

/* Logits of one row of x, for sampling: out F32 host array of the true vocabulary columns here. Blocks.
 * Needs a model that computes in FP32. */
void head_logits(const struct head *h, struct tensor x, int64_t row, float *out);

#endif

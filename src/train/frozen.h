/* frozen.h: a model from a checkpoint, to look at: one rank, FP32, no gradients, no optimizer.
 *
 * Owns the weights and the activations of one sequence. Used by commands that sample or evaluate. */
#ifndef MTRAIN_TRAIN_FROZEN_H
#define MTRAIN_TRAIN_FROZEN_H

#include "model/gpt.h"
#include "train/checkpoint.h"
#include "train/config.h"

struct frozen {
	struct config config; /* [model] and [data] as the checkpoint says */
	struct device *dev;
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	int32_t *room; /* [4·T]: tokens, order, targets, the sort's room */
};

/* Loads the checkpoint at path (a checkpoint's folder or a run's). world: of one rank; dev: not reserved yet. Fails:
 * CODE_CHECKPOINT, CODE_MACHINE. */
bool frozen_open(struct frozen *f, const char *path, struct comm *world, struct device *dev, struct error *e);
void frozen_close(struct frozen *f);

/* Logits F32 [V] of the token that follows tokens[count], 1 ≤ count ≤ T. */
void frozen_logits(struct frozen *f, const int32_t *tokens, int64_t count, float *logits);

#endif

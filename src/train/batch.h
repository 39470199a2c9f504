/* batch.h: the token ids of one micro-batch on their way to the device.
 *
 * The model's first chunk needs the inputs and, for the embedding's backward, the rows sorted by id; its last one needs
 * the targets. Of each sample a context rank takes its share. Where the ids come from is the feed's business. */
#ifndef MTRAIN_TRAIN_BATCH_H
#define MTRAIN_TRAIN_BATCH_H

#include "model/gpt.h"

/* Fills inputs[T] and targets[T] (−1: masked) of one sequence. `sample` counts from the start of the pass (training: global
 * sample number; evaluation: window number). Fails through struct error (CODE_DATA). */
struct feed {
	bool (*read)(void *context, int64_t sample, int32_t *inputs, int32_t *targets, struct error *e);
	void *context;
};

struct batch {
	const struct gpt *gpt;
	int32_t *inputs, *targets, *order; /* host [N] */
	int32_t *whole;                    /* host [2·T]: inputs and targets of a sample that is shared among context ranks */
	struct mark copied;                /* until then the host arrays must stay as they are */
};

void batch_init(struct batch *b, const struct gpt *gpt);
void batch_finish(struct batch *b);

/* Reads the B sequences that begin at `sample` and queues them into the slot. A feed that fails ends the job with its
 * cause. Chunks between the ends of the model need no ids. */
void batch_load(struct batch *b, const struct feed *feed, int64_t sample, int slot);

/* order[0 … n): the numbers 0 … n−1 sorted by key[·], equal keys by number. Keys are ≥ 0. */
void batch_sort(int32_t *order, const int32_t *key, int64_t n, int32_t *room);

#endif

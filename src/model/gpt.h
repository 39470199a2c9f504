/* gpt.h: one pipeline stage of a GPT: embedding (first stage), blocks, head and loss (last stage).
 *
 * A stage knows nothing of schedules or neighbours: it is given an input activation in a slot and asked to run
 * forward or backward for that slot. A slot holds everything that one micro-batch keeps between the two. */
#ifndef MTRAIN_MODEL_GPT_H
#define MTRAIN_MODEL_GPT_H

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"

/* What is kept of one micro-batch. The input of its first block is one of the rank's input buffers: while all slots are
 * taken, the inputs of micro-batches to come may be on their way into buffers of their own. */
struct gpt_slot {
	struct tensor tokens;  /* I32 [N]; first stage */
	struct tensor order;   /* I32 [N], rows sorted by token; first stage */
	struct tensor targets; /* I32 [N], −1: masked; last stage */
	struct block_saved *blocks;
	int input; /* buffer that blocks[0].x is */
	struct pass pass;
};

struct gpt {
	struct env env;
	bool first, last;
	int64_t first_layer, layers; /* of this stage */
	struct embedding embedding;  /* first stage */
	struct block *blocks;        /* [layers] */
	struct head head;            /* last stage */
	struct block_scratch scratch;
	struct tensor last_x;        /* [rows, C], the last block's output on the last stage */
	struct gpt_slot *slots;
	int slot_count;
	struct tensor *inputs;       /* [rows, C] each */
	int input_count;
};

struct gpt_options {
	const struct model_settings *model;
	struct param_table *params;
	struct device *dev;  /* NULL while measuring */
	struct comm *tensor; /* NULL while measuring */
	int tensor_size, tensor_rank;
	int stage, stages;
	int64_t first_layer, layers;
	int64_t batch; /* B */
	bool sequence; /* sequence parallelism, where there is more than one tensor rank; B·T must divide by them */
	uint64_t seed;
	int slots;
	int inputs; /* at least as many as slots */
};

/* Builds the stage from arenas: once to measure, once for real (memory.h). The table's settings and params must live
 * as long as the stage. */
void gpt_build(struct gpt *g, const struct gpt_options *o, struct memory *memory);
void gpt_finish(struct gpt *g);

/* The limits that the device's ops must serve for the stage. */
struct dev_limits gpt_limits(const struct gpt *g);

/* The input buffer [rows, C]: a stage that is not the first receives into it. */
struct tensor gpt_input(const struct gpt *g, int input);

/* Gives a slot to a micro-batch whose input is, or will be, in the buffer; pass is what it is run with. As built, slot i
 * has buffer i. */
void gpt_place(const struct gpt *g, int slot, int input, const struct pass *pass);

/* Forward of slot. Not last: y [rows, C] is written. Last: the losses are added to totals, and in training d [rows, C]
 * becomes the gradient of the last block's output, ready for gpt_backward. */
void gpt_forward(const struct gpt *g, int slot, struct tensor y, struct tensor totals, struct tensor d);

/* Backward of slot: d [rows, C] is the gradient of the stage's output on entry (last stage: as gpt_forward left it) and of its
 * input on return (first stage: spoilt). */
void gpt_backward(const struct gpt *g, int slot, struct tensor d);

/* A stage that is first and last: logits F32 [V] behind position `row` of the slot's tokens. Blocks. */
void gpt_logits(const struct gpt *g, int slot, int64_t row, float *out);

#endif

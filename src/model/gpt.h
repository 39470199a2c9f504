/* gpt.h: what one pipeline rank has of a GPT: chunks of blocks, the embedding before the first one of the model, head and
 * loss behind the last one.
 *
 * Chunk v of rank p is virtual stage v·stages + p. A chunk knows nothing of schedules or neighbours: it is given an input
 * activation in a slot and asked to run forward or backward for that slot. A slot holds everything that one micro-batch
 * of a chunk keeps between the two, and serves any chunk. */
#ifndef MTRAIN_MODEL_GPT_H
#define MTRAIN_MODEL_GPT_H

#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"

/* Told when a bucket of parameters (param.h) is about to be used and when its gradients are final, so that whoever moves
 * them between ranks can do so beside computing. What is NULL is not called. */
struct gpt_watch {
	void *context;
	void (*use)(void *context, int bucket);   /* what is queued from now on reads the weights */
	void (*final)(void *context, int bucket); /* what is queued so far adds the last of the gradients */
};

/* What is kept of one micro-batch. The input of its first block is one of the rank's input buffers: while all slots are
 * taken, the inputs of micro-batches to come may be on their way into buffers of their own. */
struct gpt_slot {
	struct tensor tokens;  /* I32 [N]; first stage */
	struct tensor order;   /* I32 [N], rows sorted by token; first stage */
	struct tensor targets; /* I32 [N], −1: masked; last stage */
	struct block_saved *blocks; /* [positions] */
	int chunk; /* whose micro-batch it holds */
	int wait;  /* between the parts of a backward: which of gpt.waits it has; else −1 */
	int input; /* buffer that blocks[0].x is */
	struct pass pass;
};

struct gpt_chunk {
	bool first, last; /* of the model's virtual stages: embedding before it, head behind it */
	int64_t first_layer, layers; /* layers 0: embedding or head alone; another chunk of the rank has some */
	struct block *blocks; /* [layers] */
};

struct gpt {
	struct env env;
	bool first, last;           /* whether the first, the last virtual stage is here */
	int64_t layers;             /* of all chunks */
	int64_t positions;          /* of blocks in a slot: the layers of the largest chunk */
	struct embedding embedding; /* first */
	struct gpt_chunk *chunks;
	int chunk_count;
	struct head head;           /* last */
	struct block_scratch scratch;
	struct tensor last_x;       /* [rows, C], the last block's output; last */
	struct gpt_slot *slots;
	int slot_count;
	struct block_saved *waits;  /* [wait_count·positions] for slots between two parts: what they do not keep */
	int wait_count;
	struct tensor *inputs;      /* [rows, C] each */
	int input_count;
	struct gpt_watch watch;
};

struct gpt_options {
	const struct model_settings *model;
	struct param_table *params;
	struct device *dev;  /* NULL while measuring */
	struct comm *tensor; /* NULL while measuring */
	int tensor_size, tensor_rank;
	struct comm *context; /* NULL while measuring */
	int context_size, context_rank; /* 0, 0: one; the sequence must divide by 2·context_size where there are more */
	int stage, stages, chunks;
	const int64_t *layers_of; /* [stages·chunks], layers of each virtual stage; read by gpt_build alone */
	int64_t batch; /* B */
	bool sequence; /* sequence parallelism, where there is more than one tensor rank; B·T must divide by them */
	bool whole;    /* tensor ranks move a micro-batch's rows in one chunk */
	bool overlap;  /* computing beside communication between tensor ranks */
	uint64_t seed;
	const unsigned *kept; /* [positions], what the block there keeps; NULL: all. Read by gpt_build alone */
	int slots;
	int inputs; /* at least as many as slots */
	int waits;  /* micro-batches at most between the parts of their backward; 0: they are never apart */
	struct gpt_watch watch;
};

/* Builds the rank's part from arenas: once to measure, once for real (memory.h). The table's settings and params must live
 * as long as it. */
void gpt_build(struct gpt *g, const struct gpt_options *o, struct memory *memory);
void gpt_finish(struct gpt *g);

/* One of its blocks, which are all of one shape. */
const struct block *gpt_block(const struct gpt *g);

/* The limits that the device's ops must serve for it. */
struct dev_limits gpt_limits(const struct gpt *g);

/* The input buffer [rows, C]: what a chunk that is not the first reads is received into it. */
struct tensor gpt_input(const struct gpt *g, int input);

/* Gives a slot to a micro-batch of a chunk, whose input is, or will be, in the buffer; pass is what it is run with. As built,
 * slot i has chunk 0 and buffer i. */
void gpt_place(const struct gpt *g, int slot, int chunk, int input, const struct pass *pass);

/* Forward of slot. Its chunk not the last: y [rows, C] is written. Last: the losses are added to totals, and in training d [rows, C]
 * becomes the gradient of the last block's output, ready for gpt_backward. */
void gpt_forward(const struct gpt *g, int slot, struct tensor y, struct tensor totals, struct tensor d);

/* Backward of slot. Input part: d [rows, C] is the gradient of the chunk's output on entry (last: as gpt_forward left it)
 * and of its input on return (first: spoilt); alone it turns the slot into what the weight part reads, whose d is left
 * out. A parameter's gradient belongs to one part: run in the order of micro-batches, parts give the bits of whole
 * backwards. A layer's gradients are final behind the weight part of the last micro-batch, those of the embedding behind its
 * input part; those of the head alone, which is not tied to an embedding here, behind its forward. */
void gpt_backward(struct gpt *g, int slot, enum backward_parts parts, struct tensor d);

/* The whole model in one chunk, in F32: logits [V] behind position `row` of the slot's tokens. Blocks. */
void gpt_logits(const struct gpt *g, int slot, int64_t row, float *out);

#endif

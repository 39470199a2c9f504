/* state.h: the table of what must be saved so that a run can go on.
 *
 * Each part adds its tensors: the optimizer the master weights and both moments, each as the box of a global tensor
 * that this rank holds. The checkpoint walks the table and knows nothing of models or optimizers; tensors that
 * several ranks hold alike are written by the one whose entry is marked as owner, and read by all. */
#ifndef MTRAIN_TRAIN_STATE_H
#define MTRAIN_TRAIN_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tensor.h"
#include "par/box.h"

enum { STATE_NAME = 128 };

struct state_entry {
	char name[STATE_NAME];       /* "weight/layers.3.mlp.up.weight", "m/…", "v/…" */
	enum dtype dtype;
	int dims;
	int64_t shape[TENSOR_DIMS];  /* of the global tensor, unpadded */
	struct box box;              /* the part of it that is here, unpadded; may be empty */
	struct tensor local;         /* device memory; its leading elements are the box, row-major; padding follows */
	bool owner;                  /* this rank writes it */
	bool optional;               /* absent from a checkpoint it becomes zero (moments of imported weights) */
};

struct state {
	struct state_entry *entries;
	int count, room;
};

void state_init(struct state *s);
void state_finish(struct state *s);
void state_add(struct state *s, const struct state_entry *entry);

#endif

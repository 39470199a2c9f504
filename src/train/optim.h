/* optim.h: master weights, Adam moments, and the update.
 *
 * Of every bucket of parameters this rank has a slice to update (slices.h): FP32 masters (in FP32 the weights themselves)
 * and two moments lie as the slice does, and one op unscales, clips, updates and rounds the masters to the compute type.
 * Where the slices are shared out over data ranks, the bucket's weights are then gathered from them, in the order in which
 * the next forward reads them, on the data queue: with overlap computing goes on and waits for a bucket only before its
 * first use, without it waits for each gather at once. It sees the parameter table, never the model. */
#ifndef MTRAIN_TRAIN_OPTIM_H
#define MTRAIN_TRAIN_OPTIM_H

#include "comm/comm.h"
#include "train/slices.h"
#include "train/state.h"

struct optim_options {
	struct device *dev; /* NULL while measuring */
	const struct param_table *params;
	const struct slices *slices;
	struct comm *data; /* ranks with the same weights; NULL: this one alone, or memory is measured */
	struct step_rules rules;
	bool overlap;
};

struct optim {
	struct optim_options o;
	struct adamw_item *items; /* beside the pieces of the slices */
	struct mark *gathered;    /* [buckets]: the weights are whole behind it */
};

void optim_build(struct optim *o, const struct optim_options *options, struct memory *memory);
void optim_finish(struct optim *o);

/* Initial weights from seed and global position; moments zero. Blocks. */
void optim_initialise(struct optim *o, uint64_t seed);

/* Weights in the compute type from the masters: after a load. */
void optim_masters_changed(struct optim *o);

/* Adds masters and moments, as boxes of what the slices have. A tensor has one writer among the ranks that hold it alike:
 * whose slice it is, or, unsharded, data ranks in turn. */
void optim_add_state(const struct optim *o, struct state *state);

/* Queues the update that the device's verdict allows, and the gathers. Collective over the data ranks. */
void optim_update(struct optim *o);

/* What is computed from now on finds the weights of a bucket, of all buckets, whole. */
void optim_use(const struct optim *o, int bucket);
void optim_use_all(const struct optim *o);

#endif

/* optim.h: master weights, Adam moments, and the update.
 *
 * Each parameter that is here has an FP32 master (in FP32 the weight itself), two moments, and takes part in one op
 * that unscales, clips, updates and rounds the master to the compute type. It sees the parameter table, never the
 * model. */
#ifndef MTRAIN_TRAIN_OPTIM_H
#define MTRAIN_TRAIN_OPTIM_H

#include "model/param.h"
#include "train/state.h"

struct optim {
	struct device *dev; /* NULL while measuring */
	const struct param_table *params;
	struct step_rules rules;
	struct adamw_item *items; /* one for each parameter that is here, in table order */
	int64_t count;
};

void optim_build(struct optim *o, struct device *dev, const struct param_table *params, const struct step_rules *rules,
		 struct memory *memory);
void optim_finish(struct optim *o);

/* Initial weights from seed and global position; moments zero. Blocks. */
void optim_initialise(struct optim *o, uint64_t seed);

/* Weights in the compute type from the masters: after a load. */
void optim_masters_changed(struct optim *o);

/* Adds masters and moments. writer: of the ranks with the same weights, this one writes what it owns. */
void optim_add_state(const struct optim *o, struct state *state, bool writer);

/* Queues the update that the device's verdict allows. */
void optim_update(struct optim *o);

#endif

/* counted.h: one rank of a run, built and stepped by the real code on the counting device.
 *
 * Nothing is computed, moved or allocated, so any rank of a mesh of thousands is counted in one process within
 * milliseconds: its arenas (run.memory), and a record of all that one training step queues. What the run does is what is
 * counted: there is no second description of a step.
 *
 * Owns the device, the world and the run. Used by the ledger and the planner. */
#ifndef MTRAIN_TRAIN_COUNTED_H
#define MTRAIN_TRAIN_COUNTED_H

#include "comm/count.h"
#include "dev/cost/cost.h"
#include "train/run.h"

struct counted {
	struct device *dev;
	struct comm *world;
	struct mesh mesh;
	struct count_layout layout;
	struct run run;
};

/* Builds the mesh's rank. workspace: as cost_set_workspace; its bytes count towards device.memory.
 * Must stay where it is. Needs: a config that config_check has passed, with parallel.data as in the mesh.
 * Fails: CODE_USAGE: stages, device.memory. */
bool counted_open(struct counted *c, const struct config *config, const struct mesh *mesh, cost_workspace *workspace, void *context,
		  struct error *e);
void counted_close(struct counted *c); /* a zeroed one is fine */

/* Counts a training step as it is after another one; the record is the device's. */
const struct record *counted_step(struct counted *c);

#endif

/* run.h: everything that one rank of a run is made of, put together in order and taken apart again.
 *
 *   config → mesh → groups → memory measured → memory taken → stage, step, gradients, optimizer → state
 *
 * The build code runs twice over the same arenas (dev/memory.h). A run owns all of it but the device, the world and
 * the config. The loop that drives it is train.h's; commands that only look at a model build one on a mesh of one. */
#ifndef MTRAIN_TRAIN_RUN_H
#define MTRAIN_TRAIN_RUN_H

#include "train/config.h"
#include "train/grad.h"
#include "train/optim.h"
#include "train/step.h"

struct run {
	const struct config *config;
	struct device *dev;
	struct mesh mesh;
	int64_t *stage_layers; /* [stages·chunks], of the virtual stages */
	struct groups groups;
	struct memory memory;
	struct param_table params;
	struct gpt gpt;
	struct step step;
	struct grad grad;
	struct optim optim;
	struct state state;
	struct step_rules rules;
	int micros; /* micro-batches of a rank and step */
};

/* Builds this rank's part of the run on a mesh that fits the world. Needs: a config that config_check has passed.
 * Collective. Fails: CODE_USAGE (stages), CODE_MACHINE (memory); on every rank alike. */
bool run_open(struct run *r, const struct config *config, const struct mesh *mesh, struct device *dev,
	      struct comm *world, struct error *e);
void run_close(struct run *r);

/* The rules of the step that the settings stand for. */
struct step_rules run_rules(const struct config *config);

/* The start of a run: weights from the seed, counters zero. */
void run_initialise(struct run *r);

/* The scalars that a run starts with. */
struct scalars run_scalars(const struct config *config);

/* Compares the token table's copies on the first and the last stage. Collective. Ends the job where they differ. */
void run_compare_ends(struct run *r);

/* FLOPs of a global step (design "Numbers"), without recompute. */
double run_step_flops(const struct config *config);

#endif

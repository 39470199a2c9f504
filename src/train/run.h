/* run.h: everything that one rank of a run is made of, put together in order and taken apart again.
 *
 *   config → mesh → groups → memory measured → memory taken → stage, slices, step, gradients, optimizer → state
 *
 * The build code runs twice over the same arenas (dev/memory.h). A run owns all of it but the device, the world and
 * the config, and its parts point to each other: it stays where it was opened. The loop that drives it is train.h's; the
 * planner and the ledger build one of any mesh's ranks on the counting device (counted.h). */
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
	unsigned *kept;        /* [layers] what the blocks of a slot keep, by position (model/block_saved.h) */
	struct groups groups;
	struct memory memory;
	struct param_table params;
	struct gpt gpt;
	struct slices slices;
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

/* For recompute = auto, while the run is built with all kept on measured memory: sets `kept` to the cheapest choice that
 * fits device.memory, the same on all tensor and context ranks. Collective over them. Both are run_open's. */
void run_fit_memory(struct run *r);

/* Whether what was measured fits device.memory. Fails: CODE_USAGE with what would need less. */
bool run_check_memory(const struct run *r, struct error *e);

/* The rules of the step that the settings stand for. */
struct step_rules run_rules(const struct config *config);

/* The start of a run: weights from the seed, counters zero. */
void run_initialise(struct run *r);

/* The scalars that a run starts with. */
struct scalars run_scalars(const struct config *config);

/* A training step from global sample `sample` on: schedule, gradient reduction and verdict, update. `stop`: this rank asks
 * for a stop. What came of it is in the device's scalars and in grad_totals. Collective. */
void run_step(struct run *r, const struct feed *feed, int64_t sample, bool stop);

/* Compares the token table's copies on the first and the last stage. Collective. Ends the job where they differ. */
void run_compare_ends(struct run *r);

/* Whether so many tensor ranks share norms, dropout and residuals by tokens. */
bool run_sequence(const struct config *c, int tensor);

/* FLOPs of a global step (design "Numbers"), without what is computed again: of mfu and tflops_per_device. */
double run_step_flops(const struct config *config);

#endif

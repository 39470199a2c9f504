/* train.h: a training run from its settings to its end: open, loop, close.
 *
 * Opening goes in the order of the data flow: checkpoint found, model settings completed from it, data opened, mesh
 * fitted, memory taken, weights loaded or initialised. The loop then runs one step after the other; a step is: schedule
 * carried out, gradients reduced, verdict, update, report. Evaluation, checkpoints and stops happen between steps.
 *
 * A struct train owns all but the device and the world. Used by the train command. */
#ifndef MTRAIN_TRAIN_TRAIN_H
#define MTRAIN_TRAIN_TRAIN_H

#include "train/checkpoint.h"
#include "train/config.h"
#include "train/console.h"
#include "train/data.h"
#include "train/metrics.h"
#include "train/run.h"

struct train {
	struct config *config;
	struct device *dev;
	struct comm *world;
	struct data data;
	struct checkpoint_found found; /* what was loaded; path "": nothing */
	bool weights_only;             /* moments and counters were not loaded with it */
	struct checkpoint *saver;
	struct metrics *metrics;       /* rank 0; NULL elsewhere */
	struct console *console;       /* rank 0; NULL elsewhere */
	struct run run;
	struct scalars scalars; /* as after the last step */
	struct tuning tuning;   /* of the device: kept in every checkpoint */
	double totals[TOTALS];  /* of the last step */
	int64_t saved_step;     /* of the newest checkpoint; −1: none */
	double begin;           /* of the process, by clock_now */
	double longest_step, longest_save; /* seconds, so far */
};

/* Collective over the world. begin: when the process began, by clock_now; run.max_minutes are counted from there. `program` is
 * named in launch lines. Fails on every rank alike, with any input's code. */
bool train_open(struct train *t, struct config *config, struct device *dev, struct comm *world, double begin,
		const char *program, struct error *e);
void train_close(struct train *t);

/* Trains until run.steps attempts are done, or a stop is asked for. Returns the exit code: CODE_DONE, CODE_STOPPED, or
 * with *e filled CODE_DIVERGED. Collective. */
int train_loop(struct train *t, struct error *e);

/* Mean loss over the first eval.batches·batch.global windows of the validation data (fewer if there are fewer); false: it was
 * given up between two global batches, because a stop is asked for. Needs: validation data. Collective. */
bool train_evaluate(struct train *t, double *loss);

/* Saves a checkpoint of the state after the last step; a failure is a warning. Collective. */
void train_save(struct train *t);

#endif

/* step.h: carries out a step's schedule on this rank: load, forward, exchange, backward.
 *
 * After step_train the main gradients of this rank's micro-batches are complete and totals holds this rank's share of
 * the loss. Reduction, verdict and update are grad.h's and optim.h's. */
#ifndef MTRAIN_TRAIN_STEP_H
#define MTRAIN_TRAIN_STEP_H

#include "par/groups.h"
#include "train/batch.h"
#include "train/schedule.h"

enum { STEP_BUFFERS = 2 }; /* as many outputs and gradients as a schedule ever names */

struct step {
	struct gpt *gpt;
	struct comm *pipe;
	struct memory *memory; /* whose gradient arena is zeroed */
	int stage, stages, chunks;
	int data_rank, data_size;
	int micros;                    /* of a training step */
	struct schedule train;
	int waits;                     /* micro-batches at most between parts of a backward */
	struct mark *ended;            /* [train.exchanges]: each of them */
	struct tensor y[STEP_BUFFERS]; /* outputs, activations to the next stage [N, C] */
	struct tensor d[STEP_BUFFERS]; /* gradients from the next and to the previous stage [N, C] */
	struct batch batch;
};

struct step_options {
	struct comm *pipe;
	enum schedule_kind schedule;
	int stage, stages, chunks;
	int data_rank, data_size;
	int micros; /* of a rank and step */
};

/* Makes the schedule: train.slots, train.inputs and waits are what the stage must be built with (gpt_options). */
void step_plan(struct step *s, const struct step_options *o);

/* Takes the buffers. With the stage as built. */
void step_build(struct step *s, struct gpt *gpt, struct memory *memory);
void step_finish(struct step *s);

/* A training step of global batch data_size·micros·B that begins at global sample `sample`: zeroes gradients and
 * totals (F64), runs the schedule. */
void step_train(struct step *s, const struct feed *feed, int64_t sample, struct tensor totals);

/* Forward only: `micros` micro-batches a rank, no more than a training step has, from this global sample on; losses into totals
 * (zeroed first). */
void step_evaluate(struct step *s, const struct feed *feed, int64_t sample, int micros, struct tensor totals);

#endif

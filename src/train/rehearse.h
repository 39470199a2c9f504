/* rehearse.h: what a run does once before step 1 on a device whose first calls are special.
 *
 * Each chunk runs forward and backward on zeros, so that kernels are loaded and connections made, and the device meets the
 * matrix products and attentions that it will be asked for. Then it chooses how to compute each, by timing unless device.tune
 * is off; the ranks agree (of those that have a product or an attention the lowest has the word; an attention that one of them
 * refuses, or cannot compute as was agreed, is refused by all), and what a checkpoint says stands, so that a run goes on in
 * the same bits. Gradients and activations are spoilt, which every step begins by forgetting; nothing else is.
 *
 * Used by train_open. */
#ifndef MTRAIN_TRAIN_REHEARSE_H
#define MTRAIN_TRAIN_REHEARSE_H

#include "dev/tuning.h"
#include "train/manifest.h"
#include "train/run.h"

/* *agreed becomes all choices, those of the checkpoint first. A device that needs no rehearsal: only those. Collective over
 * the world. */
void rehearse(struct run *r, struct comm *world, const struct manifest_run *checkpoint, struct tuning *agreed);

#endif

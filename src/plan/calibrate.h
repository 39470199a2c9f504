/* calibrate.h: measures a device, a node and the links between ranks, as numbers of a hardware file.
 *
 * Ops are timed at several sizes in each compute type, products in the three forms that a step has (forward with bias, input
 * gradient, weight gradient), and become the file's measured rates; memory by a large copy; collectives and messages inside
 * nodes and between them, by size. What cannot be measured here says that it is assumed. The median of several rounds counts; on the CPU their time is
 * that of the processor, which other programs do not change.
 *
 * Used by the calibrate command. */
#ifndef MTRAIN_PLAN_CALIBRATE_H
#define MTRAIN_PLAN_CALIBRATE_H

#include "comm/comm.h"
#include "dev/cost/hardware.h"

struct calibrate_options {
	struct device *dev; /* nothing reserved yet */
	struct comm *world;
	int node;           /* alike on the ranks of a node (comm/launch.h) */
	const char *folder; /* whose disk is measured */
};

/* Fills h on every rank, from rank 0's measurements. Collective. Fails: CODE_MACHINE. */
bool calibrate(struct hardware *h, const struct calibrate_options *o, struct error *e);

#endif

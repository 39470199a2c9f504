/* initial.h: a parameter's initial values, made by several threads at once.
 *
 * A value depends on seed, name and place alone (param_initial), so any number of threads gives the same bits. They live for
 * one call: a run makes its weights once, and a card's host has no threads of its own. Used by optim.c. */
#ifndef MTRAIN_TRAIN_INITIAL_H
#define MTRAIN_TRAIN_INITIAL_H

#include "model/param.h"

/* Threads that making weights for a device may take: the device's own, or for a card the cores of this process. */
int initial_threads(const struct device *dev);

/* out [count]: values begin … begin + count − 1 of what this rank has of p. */
void initial_values(const struct param *p, uint64_t seed, int64_t begin, int64_t count, float *out, int threads);

#endif

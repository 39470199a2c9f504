/* parallel.h: one loop over the device's threads; the only place that knows OpenMP.
 *
 * The parts of a loop are fixed by the shapes of an op, never by the number of threads, and each part is computed by
 * one thread; so any number of threads gives the same bits. Between two parts the calling thread pushes queued
 * communication forward, which is how communication overlaps computing on a CPU.
 *
 * Used by cpu.c and the columns of ops. */
#ifndef MTRAIN_DEV_CPU_PARALLEL_H
#define MTRAIN_DEV_CPU_PARALLEL_H

#include "dev/backend.h"

/* Runs body(context, part, thread) for each part 0 … parts−1, in any order, on threads 0 … dev_threads−1, and
 * returns when all are done. Not to be nested. */
void parallel(struct device *dev, int64_t parts, void (*body)(void *context, int64_t part, int thread), void *context);

/* For cutting loops. */
static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

static inline int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The number of threads for a wish; 0: all cores this process may run on. 1 in a build without OpenMP. */
int parallel_threads(int wish);

#endif

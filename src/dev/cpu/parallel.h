/* parallel.h: the threads of a CPU device, and the one loop over them.
 *
 * The parts of a loop are cut by the shapes of an op, never by the number of threads, and each part is computed by one
 * thread; so any number of threads gives the same bits.
 *
 * Why not OpenMP: its loops end when every thread has come by, so on a machine that is shared (several ranks, other
 * jobs) each loop waits for a thread that the system has not even started. Here a thread that comes late finds nothing
 * to do and nobody waits for it; and while the calling thread waits for the last part it pushes queued communication
 * forward, which is how communication overlaps computing on a CPU.
 *
 * A pool owns its threads. Used by cpu.c and the columns of ops. One host thread only. */
#ifndef MTRAIN_DEV_CPU_PARALLEL_H
#define MTRAIN_DEV_CPU_PARALLEL_H

#include "dev/backend.h"

/* Runs body(context, part, thread) for each part 0 … parts−1, in any order, on threads 0 … dev_threads−1, and
 * returns when all are done. Thread 0 is the caller. Not to be nested. */
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

/* The number of cores this process may run on. */
int parallel_cores(void);

/* threads − 1 threads beside the caller's. NULL: the system has not that many. */
struct pool;
struct pool *pool_open(int threads);
void pool_close(struct pool *p);

#endif

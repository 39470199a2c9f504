/* cpu.h: the CPU backend: one device, two columns of ops.
 *
 * `plain` defines every op; `fast` replaces it, op by op, where that pays. Fast files are compiled once for each
 * instruction set (fast/fast.h) and chosen when the device is opened. Computing happens at once, in the calling
 * thread and the threads of its parallel loops (parallel.h); only communication is queued (queue.h).
 *
 * Used by backends.c, by transports through backend.h, and by tests that compare the columns. */
#ifndef MTRAIN_DEV_CPU_H
#define MTRAIN_DEV_CPU_H

#include "dev/backend.h"

struct pool;

extern const struct backend backend_cpu;

/* The defining column: any float type. */
extern const struct ops ops_plain;

/* Workspace of the fast ops, sized at open (fast.h: room): one part for all threads, one for each. An op starts with
 * undefined contents. */
void *cpu_room(const struct device *dev);
void *cpu_room_of(const struct device *dev, int thread);

/* The threads of parallel.h. */
struct pool *cpu_pool(const struct device *dev);

/* Pushes queued communication forward without blocking. From the host thread only. */
void cpu_poll(struct device *dev);

#endif

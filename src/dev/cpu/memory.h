/* memory.h: large zeroed memory on huge pages.
 *
 * With 4 KiB pages the first touch of an arena costs seconds and every later access more TLB misses; so memory is
 * asked for in 2 MiB pages, and touched at once by all threads, so that a run finds out at its start what it has.
 *
 * Owns its mappings until they are given back. Used by cpu.c. */
#ifndef MTRAIN_DEV_CPU_MEMORY_H
#define MTRAIN_DEV_CPU_MEMORY_H

#include "dev/backend.h"

struct mapping {
	struct mapping *next;
	void *base;
	size_t bytes;
};

/* Zeroed memory aligned to 4096, and to 2 MiB from 2 MiB on, recorded in *list. NULL: the system has not that much. */
void *memory_take(struct device *dev, struct mapping **list, size_t bytes);

/* Gives back what memory_take gave. */
void memory_give_back(struct mapping **list, void *memory);

#endif

/* arena.h: memory taken once, handed out in order, given back all at once.
 *
 * Every byte that training needs comes from an arena, and the build code that fills it runs twice: first on an
 * arena that only measures (base is NULL, nothing may be touched), then on one of exactly that size. So a run that
 * starts does not run out of memory later, and the figures printed at start are the whole truth.
 *
 * An arena does not own its memory: the device gave it. */
#ifndef MTRAIN_BASE_ARENA_H
#define MTRAIN_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/tensor.h"

enum { ARENA_ALIGN = 64 };

struct arena {
	const char *name; /* what it is for: "weights", "activations", … */
	char *base;       /* NULL while measuring */
	size_t used;      /* bytes handed out */
	size_t capacity;  /* bytes there are; no limit while measuring */
};

void arena_measure(struct arena *a, const char *name);                           /* starts one that measures */
void arena_init(struct arena *a, const char *name, void *base, size_t capacity); /* starts one over memory */

static inline bool arena_measuring(const struct arena *a)
{
	return a->base == NULL;
}

/* The next `bytes`, aligned to ARENA_ALIGN, contents undefined. While measuring the pointer is NULL.
 * Fails (check): more than was measured is asked for. */
void *arena_take(struct arena *a, size_t bytes);

/* A tensor over arena memory. */
struct tensor arena_tensor(struct arena *a, enum dtype dtype, int dims, const int64_t *shape);
struct tensor arena_1d(struct arena *a, enum dtype dtype, int64_t n);
struct tensor arena_2d(struct arena *a, enum dtype dtype, int64_t rows, int64_t columns);

#endif

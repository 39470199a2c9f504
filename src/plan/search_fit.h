/* search_fit.h: the meshes that devices, model and nodes allow, and what fits on them at all: with full recompute, micro-batches of
 * one sequence and the optimizer shared out over data ranks, where memory is least. Inside of the search. */
#ifndef MTRAIN_PLAN_SEARCH_FIT_H
#define MTRAIN_PLAN_SEARCH_FIT_H

#include "plan/search.h"

enum { SEARCH_CHUNKS = 8 }; /* the most that are tried */

/* Calls f for each mesh; its data ranks, tensor, context and pipeline. */
void search_each_mesh(const struct plan_options *o, int64_t devices, void (*f)(void *to, const struct search_layout *mesh), void *to);

/* What keeps devices from being divided, an example of each setting: "model.heads = 12 is not divisible by tensor = 5; …". Returns
 * buf. The config comes back. */
char *search_undivided(char *buf, size_t room, const struct plan_options *o);

/* Fills fewest and its layout: of a node's devices, then of whole nodes, each number of them up to 64 and above to within 1%.
 * 0: none fits. */
void search_fewest(struct search *s, const struct plan_options *o);

/* What needs least on o->devices, where nothing fits; reason says how much. Memory 0: no mesh could be counted. */
struct search_layout search_nearest(const struct plan_options *o);

/* Fills longest and its layout, to 1024 tokens, or to the config's sequence where that is shorter. The config comes back. */
void search_longest(struct search *s, const struct plan_options *o);

#endif

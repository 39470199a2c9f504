/* search.h: the best layouts for a number of devices, and why the others are not.
 *
 * All layouts that divide are tried: tensor × context × pipeline × data ranks, micro-batches, schedules with their chunks, the
 * optimizer sharded or whole, recompute (none where it fits, else the cheapest set that does). Each is first sketched: its first,
 * a middle and its last stage are counted and timed alone, and what they wait for each other has a formula. A whole optimizer stays
 * in where that makes it faster. The best of these are planned in full and ranked by seconds; ties within 1% go to the one with more
 * memory to spare.
 *
 * Used by the plan command. */
#ifndef MTRAIN_PLAN_SEARCH_H
#define MTRAIN_PLAN_SEARCH_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "plan/plan.h"

struct search_layout {
	int64_t data, context, tensor, pipeline, chunks, micro;
	enum pipeline_schedule schedule;
	enum recompute_choice recompute;
	bool sharded;            /* optimizer, over data x context ranks */
	double sketch;           /* seconds; 0: does not fit, or is too slow to be looked at */
	bool beaten;             /* fits, and another that needs less memory is as fast */
	double seconds, mfu;     /* planned in full; 0: not */
	int64_t memory;          /* of the fullest stage */
	char reason[160];        /* why it is out; empty: it is in the ranking */
};

struct search {
	struct search_layout *list; /* those planned in full by rank, then those that fit by sketch, then the others */
	int count, room;
	int ranked;
	int64_t devices;
	int64_t fewest;           /* devices on which the model fits at all (search_fit.h); 0: not within 1048576 */
	struct search_layout fewest_layout;
	int64_t longest;          /* tokens of a sequence that still fits on `devices`; 0: none */
	struct search_layout longest_layout;
};

/* Fails: CODE_USAGE: settings missing, no layout divides, none fits. */
bool search_make(struct search *s, const struct plan_options *o, struct error *e);
void search_finish(struct search *s);

void search_report(const struct search *s, FILE *out);
cJSON *search_json(const struct search *s);

#endif

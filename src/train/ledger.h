/* ledger.h: what a step takes of one rank, in plain numbers: traffic by group and kind of call, FLOPs by op, what is computed
 * again, what is kept for backward, the peak of each arena.
 *
 * It is counted, not estimated: the rank's own build and step run once more on the counting device (counted.h). The run
 * writes it at start, the planner shows it, tests hold it against the formulas of papers and against what a real step
 * sends. Plain data. */
#ifndef MTRAIN_TRAIN_LEDGER_H
#define MTRAIN_TRAIN_LEDGER_H

#include <cjson/cJSON.h>

#include "train/counted.h"

enum { LEDGER_GROUPS = 8, LEDGER_NAME = 16 };

struct ledger {
	int rank; /* what stands behind it is equal for ranks that do the same */
	int stage;
	int groups;
	struct ledger_group {
		char name[LEDGER_NAME]; /* "tensor", … */
		int ranks;
		struct comm_count count;
	} group[LEDGER_GROUPS];
	struct ledger_op {
		int64_t calls;
		double flops, again, bytes; /* as op_cost.h counts them */
	} op[OP_COUNT];
	double flops, again; /* of all ops; again: computed a second time */
	/* Bytes of activations that are kept, in all slots: of each tensor of the blocks; of what waits for its weight part;
	 * of token ids. Together they are the arena of activations. */
	int64_t saved[BLOCK_TENSORS], waiting, ids;
	char saved_name[BLOCK_TENSORS][LEDGER_NAME];
	int64_t arena[MEMORY_KINDS]; /* peak: all of it is taken at start */
	int64_t workspace;
};

/* The ledger of a counted rank and the record of its step. */
void ledger_make(struct ledger *l, const struct counted *c, const struct record *record);

/* That of this rank of a real run, counted as it was built. */
void ledger_of_run(struct ledger *l, const struct run *run);

/* The group's entry, or NULL: it made no call. */
const struct ledger_group *ledger_find(const struct ledger *l, const char *group);

/* As a JSON object, for cJSON_Delete. */
cJSON *ledger_json(const struct ledger *l);

/* Those of many ranks as an array: each that differs once, with `ranks`, an array of the ranks that it is true of. */
cJSON *ledger_json_all(const struct ledger *all, int ranks);

#endif

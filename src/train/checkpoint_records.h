/* checkpoint_records.h: the state tables of all ranks as one list on rank 0.
 *
 * Private to checkpoint_save.c and checkpoint_load.c. A record is plain bytes, so that it can travel. */
#ifndef MTRAIN_TRAIN_CHECKPOINT_RECORDS_H
#define MTRAIN_TRAIN_CHECKPOINT_RECORDS_H

#include "comm/comm.h"
#include "train/state.h"

struct record {
	char name[STATE_NAME];
	int64_t shape[TENSOR_DIMS];
	struct box box;
	enum dtype dtype;
	int dims;
	int rank;  /* whose entry it is */
	int entry; /* its number in that rank's table */
	bool owner, optional;
};

/* Brings every rank's entries to rank 0, sorted by name, then rank, then entry; *records is from malloc there, NULL
 * with a count of 0 on the others. Collective. Fails, on all ranks alike: CODE_MACHINE, no memory. */
bool records_gather(struct comm *world, const struct state *state, struct record **records, int64_t *count,
		    struct error *e);

/* The key of an entry in its rank's file: the tensor's name, with # and the entry's number where an owned entry of the
 * same name comes before it. */
enum { RECORD_KEY = STATE_NAME + 16 };
void record_key(char key[RECORD_KEY], const char *name, int entry, bool first);

#endif

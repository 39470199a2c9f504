/* checkpoint_records.h: the state tables of all ranks as one list on rank 0.
 *
 * Private to the checkpoint_*.c files. A record is plain bytes, so that it can travel. */
#ifndef MTRAIN_TRAIN_CHECKPOINT_RECORDS_H
#define MTRAIN_TRAIN_CHECKPOINT_RECORDS_H

#include "comm/comm.h"
#include "train/checkpoint.h"
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

/* Whether the tensors of all ranks' states and those of the checkpoint are the same, by name, type and shape; an
 * optional one may be missing there. weights_only: only those named "weight/…" are looked at.
 * records: as records_gather gives them. Fails: CODE_CHECKPOINT with the lists of names. */
bool records_compare(const struct checkpoint_found *found, const struct record *records, int64_t count,
		     bool weights_only, struct error *e);

bool record_is_weight(const char *name);

#endif

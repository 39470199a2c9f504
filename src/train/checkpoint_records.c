#include "train/checkpoint_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
	const struct record *x = a, *y = b;
	int order = strcmp(x->name, y->name);
	if (order != 0)
		return order;
	return x->rank != y->rank ? x->rank - y->rank : x->entry - y->entry;
}

static void fill(struct record *r, const struct state *state, int rank)
{
	for (int i = 0; i < state->count; i++) {
		const struct state_entry *s = &state->entries[i];
		memset(&r[i], 0, sizeof r[i]); /* padding travels too */
		memcpy(r[i].name, s->name, strlen(s->name));
		memcpy(r[i].shape, s->shape, sizeof r[i].shape);
		r[i].box = s->box;
		r[i].dtype = s->dtype;
		r[i].dims = s->dims;
		r[i].rank = rank;
		r[i].entry = i;
		r[i].owner = s->owner;
		r[i].optional = s->optional;
	}
}

/* One rank after the other sends its table, so that only rank 0 ever holds more than one. */
bool records_gather(struct comm *world, const struct state *state, struct record **records, int64_t *count,
		    struct error *e)
{
	int rank = comm_rank(world), ranks = comm_size(world);
	int64_t mine = state->count, total = 0, largest = 0;
	int64_t *counts = calloc((size_t)ranks, sizeof *counts);
	if (!counts)
		die(CODE_MACHINE, "out of memory for %d ranks", ranks);
	comm_host_gather(world, counts, &mine, sizeof mine);
	for (int r = 0; r < ranks; r++) {
		total += counts[r];
		largest = counts[r] > largest ? counts[r] : largest;
	}
	struct error local = {0};
	struct record *all = calloc((size_t)(rank == 0 ? total : largest) + 1, sizeof *all);
	if (!all)
		error_set(&local, CODE_MACHINE, "out of memory for a list of %lld tensors", (long long)total);
	if (!comm_agree(world, &local)) {
		*e = local;
		free(all);
		free(counts);
		return false;
	}
	struct record *at = all;
	for (int r = 0; r < ranks; r++) {
		if (r == rank)
			fill(at, state, rank);
		if (counts[r] > 0)
			comm_host_broadcast(world, at, (size_t)counts[r] * sizeof *at, r);
		if (rank == 0)
			at += counts[r];
	}
	free(counts);
	if (rank == 0) {
		qsort(all, (size_t)total, sizeof *all, by_name);
	} else {
		free(all);
		all = NULL;
		total = 0;
	}
	*records = all;
	*count = total;
	return true;
}

void record_key(char key[RECORD_KEY], const char *name, int entry, bool first)
{
	if (first)
		snprintf(key, RECORD_KEY, "%s", name);
	else
		snprintf(key, RECORD_KEY, "%s#%d", name, entry);
}

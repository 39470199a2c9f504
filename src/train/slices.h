/* slices.h: which part of every bucket of parameters is this rank's to update.
 *
 * With the optimizer sharded over d data ranks (Rajbhandari et al. 2020) each of them keeps masters and moments of one of d
 * equal slices of every bucket, receives the sum of the gradients of that slice, updates it and sends its weights to the
 * others; without, there is one slice. A slice cuts through parameters: what it has of one is a piece.
 *
 * Owns the list. Made by run.c, used by grad.c and optim.c. */
#ifndef MTRAIN_TRAIN_SLICES_H
#define MTRAIN_TRAIN_SLICES_H

#include "model/param.h"

struct slices_piece {
	const struct param *param;
	int64_t begin, count; /* of its elements on this tensor rank, padded rows included */
	int64_t at;           /* the first one's place in its bucket's slice */
};

struct slices {
	int count, rank; /* of how many, and which one is here */
	struct slices_piece *pieces; /* bucket by bucket, there in table order */
	int *first; /* [buckets + 1]: pieces of bucket i are those from first[i] to first[i + 1] */
	int pieces_count;
};

/* Needs: the table's buckets are all there, and were made for as many slices (t->slices). */
void slices_init(struct slices *s, const struct param_table *t, int rank);
void slices_finish(struct slices *s);

/* The slice of a bucket's weights or gradients that is here. */
struct tensor slices_own(const struct slices *s, struct tensor bucket);

/* A piece of such a slice, or of something else that lies like it. */
struct tensor slices_part(const struct slices_piece *p, struct tensor slice);

#endif

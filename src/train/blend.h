/* blend.h: which source each sample comes from.
 *
 * Sample n, from n = 0 on, comes from the source with the largest deficit
 *
 *   deficit = (n + 1)·weight/(sum of weights) − samples taken from it so far,    ties to the first source
 *
 * so at every n each source has its share to within about one sample. Weights are the decimal numbers that were
 * typed, to 15 digits: whole numbers w without a common divisor and their sum P. No rounding then decides a tie, and
 * after each P samples every source has exactly its share and the pattern repeats, so a far sample costs at most P
 * steps, and the next one costs one.
 *
 * Owns its arrays. Used by data. */
#ifndef MTRAIN_TRAIN_BLEND_H
#define MTRAIN_TRAIN_BLEND_H

#include <stdint.h>

#include "base/error.h"

struct blend {
	int sources;
	int64_t period;   /* P */
	int64_t *weight;  /* [sources] */
	/* before sample `sample` */
	int64_t sample;
	int64_t *taken;   /* [sources] */
	int64_t *behind;  /* [sources]: sample·weight − P·taken */
};

/* A blend by weights as typed: decimal numbers above 0, with fraction and exponent. Needs: sources ≥ 1.
 * Fails: CODE_USAGE: not such a number, or they differ by more than 15 digits. */
bool blend_init(struct blend *b, const char *const *weights, int sources, struct error *e);
void blend_finish(struct blend *b);

/* Goes to sample n ≥ 0 (forward: a step a sample, never more than P): then taken[] counts samples 0 … n−1. */
void blend_seek(struct blend *b, int64_t n);

/* The source of sample n; b->taken[source] then is its number among that source's samples. Leaves b at n. */
int blend_source(struct blend *b, int64_t n);

#endif

/* dropout.h: dropout inside a kernel, with the very masks of rng.h.
 *
 * What is dropped is multiplied by 0, so that a NaN stays one. A mask depends on seed, site, global sample and element alone; the sample's number comes from the step's scalars in
 * device memory. Four neighbours share one draw; pieces that start at a multiple of four use each draw whole.
 * Used by .cu files only. */
#ifndef MTRAIN_CUDA_DROPOUT_H
#define MTRAIN_CUDA_DROPOUT_H

#include "base/rng.h"
#include "launch.h"

struct drop {
	uint64_t seed;
	struct span span;
	const struct scalars *scalars;
	uint32_t site, threshold;
	float scale; /* 1/(1 − p) */
	bool on;
};

static inline struct drop drop_of(const struct dropout *d, const struct scalars *scalars)
{
	struct drop r = {d->seed, d->span, scalars, d->site,
			 rng_threshold(d->rate), (float)(1.0 / (1.0 - d->rate)), d->rate > 0};
	return r;
}

__device__ inline uint32_t drop_word(const struct philox &w, int i)
{
	return i < 2 ? (i == 0 ? w.word[0] : w.word[1]) : (i == 2 ? w.word[2] : w.word[3]);
}

/* The factor of one element: 0 or the scale. */
__device__ inline float drop_factor(const struct drop &d, uint64_t sample, int64_t element)
{
	struct philox w = rng_dropout(d.seed, (uint64_t)element / 4, sample, d.site);
	return drop_word(w, (int)(element % 4)) >= d.threshold ? d.scale : 0.0f;
}

/* Drops from v, the W elements of row `row` of [N, C] from column c. */
template <int W> __device__ inline void drop_row(float (&v)[W], const struct drop &d, int64_t row, int64_t C, int64_t c)
{
	if (!d.on)
		return;
	int64_t element = span_token(&d.span, row) * C + c;
	uint64_t sample = (uint64_t)(d.scalars->samples + span_sample(&d.span, row));
	if (element % 4 == 0) {
		for (int i = 0; i < W; i += 4) {
			struct philox w = rng_dropout(d.seed, (uint64_t)(element + i) / 4, sample, d.site);
			for (int j = 0; j < 4; j++)
				v[i + j] *= w.word[j] >= d.threshold ? d.scale : 0.0f;
		}
		return;
	}
	for (int i = 0; i < W; i++)
		v[i] *= drop_factor(d, sample, element + i);
}

#endif

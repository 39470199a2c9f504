/* sampler.h: picks the next token from logits: temperature, the k likeliest, the least set with probability p. */
#ifndef MTRAIN_TRAIN_SAMPLER_H
#define MTRAIN_TRAIN_SAMPLER_H

#include <stdint.h>

struct sampler {
	double temperature; /* 0: always the likeliest */
	int64_t top_k;      /* 0: all */
	double top_p;       /* 1: all */
	uint64_t seed;
};

/* Token number n of the text: softmax(logits/temperature) over the top_k likeliest, cut to the likeliest that reach
 * top_p together (at least one), drawn with the Philox word (seed; n). Equal logits rank by id. room: [vocab]. */
int32_t sampler_pick(const struct sampler *s, int64_t n, const float *logits, int64_t vocab, int32_t *room);

#endif

#include "train/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

static int likelier(const void *a, const void *b, void *logits)
{
	int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
	const float *l = logits;
	if (l[i] != l[j])
		return l[i] > l[j] ? -1 : 1;
	return (i > j) - (i < j);
}

int32_t sampler_pick(const struct sampler *s, int64_t n, const float *logits, int64_t vocab, int32_t *room)
{
	for (int64_t i = 0; i < vocab; i++)
		room[i] = (int32_t)i;
	float *copy = (float *)(uintptr_t)logits; /* qsort_r's context is not const */
	qsort_r(room, (size_t)vocab, sizeof *room, likelier, copy);
	int64_t count = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
	if (s->temperature <= 0)
		return room[0];

	double highest = (double)logits[room[0]], total = 0, sum = 0;
	for (int64_t i = 0; i < count; i++)
		total += exp(((double)logits[room[i]] - highest) / s->temperature);
	int64_t kept = 0;
	while (kept < count && (kept == 0 || sum < s->top_p * total))
		sum += exp(((double)logits[room[kept++]] - highest) / s->temperature);

	uint32_t word = philox(s->seed, (struct philox){{(uint32_t)n, (uint32_t)(n >> 32), 0, 0}}).word[0];
	double left = ((double)word + 0.5) * 0x1p-32 * sum;
	for (int64_t i = 0; i + 1 < kept; i++) {
		left -= exp(((double)logits[room[i]] - highest) / s->temperature);
		if (left < 0)
			return room[i];
	}
	return room[kept - 1];
}

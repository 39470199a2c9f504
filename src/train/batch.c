#include "train/batch.h"

#include <stdlib.h>

void batch_init(struct batch *b, const struct gpt *gpt)
{
	size_t n = (size_t)gpt->env.tokens;
	*b = (struct batch){.gpt = gpt};
	if (!gpt->env.dev || !dev_computes(gpt->env.dev))
		return; /* nothing will be read into them */
	b->inputs = calloc(n, sizeof *b->inputs);
	b->targets = calloc(n, sizeof *b->targets);
	b->order = calloc(2 * n, sizeof *b->order); /* the second half is the sort's room */
	b->whole = calloc(2 * (size_t)gpt->env.model->sequence, sizeof *b->whole);
	check(b->inputs && b->targets && b->order && b->whole);
}

void batch_finish(struct batch *b)
{
	free(b->inputs);
	free(b->targets);
	free(b->order);
	free(b->whole);
	*b = (struct batch){0};
}

/* Least significant digit first, so that equal keys keep their order. */
void batch_sort(int32_t *order, const int32_t *key, int64_t n, int32_t *room)
{
	enum { BITS = 11, BUCKETS = 1 << BITS };
	int32_t *from = room, *to = order;
	for (int64_t i = 0; i < n; i++)
		from[i] = (int32_t)i;
	for (int shift = 0; shift < 3 * BITS; shift += BITS) { /* three passes: the result ends in `order` */
		int64_t begin[BUCKETS + 1] = {0};
		for (int64_t i = 0; i < n; i++)
			begin[(((uint32_t)key[i] >> shift) & (BUCKETS - 1)) + 1]++;
		for (int d = 0; d < BUCKETS; d++)
			begin[d + 1] += begin[d];
		for (int64_t i = 0; i < n; i++)
			to[begin[((uint32_t)key[from[i]] >> shift) & (BUCKETS - 1)]++] = from[i];
		int32_t *swap = from;
		from = to;
		to = swap;
	}
}

void batch_load(struct batch *b, const struct feed *feed, int64_t sample, int slot)
{
	const struct gpt *g = b->gpt;
	struct device *dev = g->env.dev;
	struct span share = env_share(&g->env, g->env.context_rank, 0);
	int64_t length = g->env.length, n = g->env.tokens;
	const struct gpt_slot *s = &g->slots[slot];
	const struct gpt_chunk *c = &g->chunks[s->chunk];

	if (!c->first && !c->last)
		return;
	dev_finish(dev, b->copied);
	for (int64_t i = 0; i < g->env.batch && dev_computes(dev); i++) {
		struct error e;
		bool whole = length == g->env.model->sequence;
		int32_t *inputs = whole ? b->inputs + i * length : b->whole;
		int32_t *targets = whole ? b->targets + i * length : b->whole + g->env.model->sequence;
		if (!feed->read(feed->context, sample + i, inputs, targets, &e))
			die(e.code, "%s", e.text);
		for (int64_t t = 0; !whole && t < length; t++) {
			b->inputs[i * length + t] = inputs[span_place(&share, t)];
			b->targets[i * length + t] = targets[span_place(&share, t)];
		}
	}
	dev_wait(dev, Q_COPY, dev_mark(dev, Q_COMPUTE));
	if (c->first) {
		if (dev_computes(dev))
			batch_sort(b->order, b->inputs, n, b->order + n);
		dev_write(dev, Q_COPY, s->tokens, b->inputs);
		dev_write(dev, Q_COPY, s->order, b->order);
	}
	if (c->last)
		dev_write(dev, Q_COPY, s->targets, b->targets);
	b->copied = dev_mark(dev, Q_COPY);
	dev_wait(dev, Q_COMPUTE, b->copied);
}

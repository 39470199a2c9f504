#include "model/recompute.h"

#include <stdio.h>
#include <string.h>

unsigned recompute_kept(enum recompute_choice choice)
{
	switch (choice) {
	case RECOMPUTE_SELECTIVE:
		return BLOCK_ALL & ~(1u << BLOCK_N1 | 1u << BLOCK_N2 | 1u << BLOCK_G);
	case RECOMPUTE_FULL:
		return 1u << BLOCK_X;
	default:
		return BLOCK_ALL;
	}
}

double recompute_cost(const struct block_row *row)
{
	return row->flops + 150 * row->traffic + 1000 * row->moved;
}

enum { ITEMS = BLOCK_TENSORS - 1 };

/* A search over how many positions each tensor is dropped at; those that save most for their cost come first. */
struct search {
	struct item {
		enum block_tensor which;
		double cost;    /* at one position */
		int64_t bytes;  /* saved at one position, in all slots */
		int64_t buffer; /* taken once */
	} items[ITEMS];
	int64_t layers;
	int64_t drops[ITEMS], best[ITEMS];
	double best_cost; /* < 0: none found */
};

/* Whether what a saves costs more a byte. */
static bool dearer(const struct item *a, const struct item *b)
{
	return a->cost * (double)b->bytes > b->cost * (double)a->bytes;
}

static void begin(struct search *s, const struct recompute_fit *f)
{
	*s = (struct search){.layers = f->layers, .best_cost = -1};
	for (int i = 0; i < ITEMS; i++) {
		const struct block_row *row = &f->rows[BLOCK_X + 1 + i];
		struct item item = {
			.which = (enum block_tensor)(BLOCK_X + 1 + i), .cost = recompute_cost(row),
			.bytes = (int64_t)row->bytes * f->slots, .buffer = (int64_t)row->bytes,
		};
		int at = i;
		for (; at > 0 && dearer(&s->items[at - 1], &item); at--)
			s->items[at] = s->items[at - 1];
		s->items[at] = item;
	}
}

/* A cost below which no choice among the items from `from` on can save the excess; < 0: they cannot at all. */
static double least_cost(const struct search *s, int from, int64_t excess)
{
	double cost = 0;
	for (int i = from; i < ITEMS && excess > 0; i++) {
		const struct item *item = &s->items[i];
		int64_t most = item->bytes * s->layers, taken = excess < most ? excess : most;
		if (most == 0)
			continue;
		cost += item->cost * (double)taken / (double)item->bytes;
		excess -= most;
	}
	return excess > 0 ? -1 : cost;
}

static void search(struct search *s, int at, double cost, int64_t excess)
{
	double least = least_cost(s, at, excess);
	if (least < 0 || (s->best_cost >= 0 && cost + least >= s->best_cost))
		return;
	if (excess <= 0) {
		memset(&s->drops[at], 0, (size_t)(ITEMS - at) * sizeof *s->drops);
		memcpy(s->best, s->drops, sizeof s->best);
		s->best_cost = cost;
		return;
	}
	const struct item *item = &s->items[at];
	int64_t enough = (excess + item->buffer + item->bytes - 1) / item->bytes;
	for (int64_t n = enough < s->layers ? enough : s->layers; n >= 0; n--) {
		s->drops[at] = n;
		search(s, at + 1, cost + (double)n * item->cost, excess - n * item->bytes + (n > 0 ? item->buffer : 0));
	}
}

bool recompute_fit(const struct recompute_fit *f, unsigned *kept)
{
	struct search s;
	begin(&s, f);
	search(&s, 0, 0, f->excess);
	for (int64_t i = 0; i < f->layers; i++)
		kept[i] = recompute_kept(s.best_cost < 0 ? RECOMPUTE_FULL : RECOMPUTE_NONE);
	for (int k = 0; k < ITEMS; k++)
		for (int64_t i = f->layers - s.best[k]; i < f->layers; i++)
			kept[i] &= ~(1u << s.items[k].which);
	return s.best_cost >= 0;
}

char *recompute_text(char buf[RECOMPUTE_ROOM], const unsigned *kept, int64_t layers, const struct block_row *rows)
{
	int at = 0;
	for (int t = 0; t < BLOCK_TENSORS; t++) {
		int64_t dropped = 0;
		for (int64_t i = 0; i < layers; i++)
			dropped += !(kept[i] >> t & 1);
		if (dropped == 0)
			continue;
		at += snprintf(buf + at, (size_t)(RECOMPUTE_ROOM - at), at ? ", %s" : "%s", rows[t].name);
		if (dropped < layers)
			at += snprintf(buf + at, (size_t)(RECOMPUTE_ROOM - at), " in %lld of %lld layers",
				       (long long)dropped, (long long)layers);
	}
	if (at == 0)
		snprintf(buf, RECOMPUTE_ROOM, "nothing");
	return buf;
}

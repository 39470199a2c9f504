#include "train/schedule_order.h"

#include <stdlib.h>

#include "base/error.h"

enum { UNKNOWN = -1 };

static void *take(size_t count, size_t size)
{
	void *p = calloc(count, size);
	check(p);
	return p;
}

/* A rank while all are timed. */
struct runner {
	struct schedule_work *works;
	int count, at;
	int now;
};

/* Appends number `index` of the rank's forwards or backwards, unless it is of a micro-batch that does not exist. */
static void append(struct runner *r, const struct schedule_options *o, enum action_kind kind, int index)
{
	int group = o->stages * o->chunks;
	if (index < 0)
		return;
	int micro = index / group * o->stages + index % o->stages;
	int chunk = index % group / o->stages;
	if (micro < o->micros)
		r->works[r->count++] = (struct schedule_work){
			.kind = kind, .micro = micro, .chunk = kind == ACTION_FORWARD ? chunk : o->chunks - 1 - chunk,
		};
}

static void put_in_order(struct runner *r, const struct schedule_options *o, int stage)
{
	int behind = o->stages - 1 - stage;
	int groups = (o->micros + o->stages - 1) / o->stages;
	int ahead = o->kind == SCHEDULE_INTERLEAVED ? 2 * behind + (o->chunks - 1) * o->stages : behind;
	bool split = o->kind == SCHEDULE_ZERO_BUBBLE && stage > 0;
	int last = groups * o->stages * o->chunks + ahead + (split ? stage : 0);

	for (int k = 0; k < last; k++) {
		append(r, o, ACTION_FORWARD, k);
		if (o->kind != SCHEDULE_FORWARD)
			append(r, o, split ? ACTION_BACKWARD_INPUT : ACTION_BACKWARD, k - ahead);
		if (split)
			append(r, o, ACTION_BACKWARD_WEIGHT, k - ahead - stage);
	}
}

static int *end_of(const struct schedule_order *order, int *ends, int virtual, int micro)
{
	return &ends[virtual * order->options.micros + micro];
}

/* When what a work needs from another rank is there; UNKNOWN: not timed yet. */
static int ready(const struct schedule_order *order, const struct schedule_work *w, int virtual)
{
	int last = order->options.stages * order->options.chunks - 1;
	bool forward = w->kind == ACTION_FORWARD;

	if (w->kind == ACTION_BACKWARD_WEIGHT || virtual == (forward ? 0 : last))
		return 0;
	int made = forward ? *end_of(order, order->forward_end, virtual - 1, w->micro)
			   : *end_of(order, order->backward_end, virtual + 1, w->micro);
	return made == UNKNOWN ? UNKNOWN : made + order->transfer;
}

/* Runs a rank's works as far as the others allow; whether there was one. */
static bool run(const struct schedule_order *order, struct runner *r, int stage)
{
	int before = r->at;
	for (; r->at < r->count; r->at++) {
		struct schedule_work *w = &r->works[r->at];
		int virtual = w->chunk * order->options.stages + stage;
		int from = ready(order, w, virtual);
		if (from == UNKNOWN)
			break;
		w->start = from > r->now ? from : r->now;
		w->end = r->now = w->start + (w->kind == ACTION_BACKWARD ? 2 : 1) * SCHEDULE_UNIT;
		if (w->kind == ACTION_FORWARD)
			*end_of(order, order->forward_end, virtual, w->micro) = w->end;
		else if (w->kind != ACTION_BACKWARD_WEIGHT)
			*end_of(order, order->backward_end, virtual, w->micro) = w->end;
	}
	return r->at > before;
}

static int transfer_time(enum schedule_kind kind)
{
	switch (kind) {
	case SCHEDULE_INTERLEAVED:
		return SCHEDULE_UNIT;
	case SCHEDULE_ZERO_BUBBLE:
		return SCHEDULE_UNIT / 2;
	case SCHEDULE_1F1B:
	case SCHEDULE_FORWARD:
		break;
	}
	return 0;
}

void schedule_order_make(struct schedule_order *order, const struct schedule_options *o)
{
	size_t pairs = (size_t)o->chunks * (size_t)o->micros; /* of a rank; at most three works each */
	size_t stages = (size_t)o->stages;
	struct runner *runners = take(stages, sizeof *runners);

	*order = (struct schedule_order){
		.options = *o, .transfer = transfer_time(o->kind),
		.all = take(stages * pairs * 3, sizeof *order->all),
		.forward_end = take(stages * pairs, sizeof *order->forward_end),
		.backward_end = take(stages * pairs, sizeof *order->backward_end),
	};
	for (size_t i = 0; i < stages * pairs; i++)
		order->forward_end[i] = order->backward_end[i] = UNKNOWN;
	for (int i = 0; i < o->stages; i++) {
		runners[i].works = order->all + (size_t)i * pairs * 3;
		put_in_order(&runners[i], o, i);
	}
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < o->stages; i++)
			moved |= run(order, &runners[i], i);
	}
	for (int i = 0; i < o->stages; i++)
		check(runners[i].at == runners[i].count);
	order->works = runners[o->stage].works;
	order->count = runners[o->stage].count;
	free(runners);
}

void schedule_order_finish(struct schedule_order *order)
{
	free(order->all);
	free(order->forward_end);
	free(order->backward_end);
	*order = (struct schedule_order){0};
}

int schedule_order_forward_end(const struct schedule_order *order, int virtual, int micro)
{
	return *end_of(order, order->forward_end, virtual, micro);
}

int schedule_order_backward_end(const struct schedule_order *order, int virtual, int micro)
{
	return *end_of(order, order->backward_end, virtual, micro);
}

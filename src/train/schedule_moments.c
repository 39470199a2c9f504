#include "train/schedule_moments.h"

#include <stdlib.h>

#include "base/error.h"

/* When an activation leaves virtual stage `virtual`. Under 1F1B the receiver's slot, its input, must be free. */
static int activation_time(const struct schedule_order *order, int virtual, int micro)
{
	int made = schedule_order_forward_end(order, virtual, micro);
	if (order->options.kind != SCHEDULE_1F1B)
		return made;
	struct schedule_options receiver = order->options;
	receiver.stage = virtual + 1;
	int before = micro - schedule_slots(&receiver); /* had the slot */
	int freed = before >= 0 ? schedule_order_backward_end(order, virtual + 1, before) : 0;
	return made > freed ? made : freed;
}

static void add_moment(struct schedule_moments *m, const struct schedule_order *order, const struct schedule_work *w,
		       int boundary, bool send)
{
	const struct schedule_options *o = &order->options;
	int virtual = w->chunk * o->stages + o->stage;
	int other = (boundary == BOUNDARY_ACTIVATION) == send ? virtual + 1 : virtual - 1;
	if (other < 0 || other == o->stages * o->chunks)
		return;

	int from = send ? virtual : other;
	m->list[m->count++] = (struct schedule_moment){
		.time = boundary == BOUNDARY_ACTIVATION ? activation_time(order, from, w->micro)
							: schedule_order_backward_end(order, from, w->micro),
		.lower = virtual < other ? virtual : other,
		.transfer = {
			.boundary = boundary, .send = send, .peer = other % o->stages,
			.chunk = w->chunk, .micro = w->micro,
		},
	};
}

static int compare_moments(const void *a, const void *b)
{
	const struct schedule_moment *x = a, *y = b;
	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	if (x->transfer.boundary != y->transfer.boundary)
		return x->transfer.boundary == BOUNDARY_ACTIVATION ? -1 : 1;
	if (x->lower != y->lower)
		return x->lower < y->lower ? -1 : 1;
	return x->transfer.micro < y->transfer.micro ? -1 : x->transfer.micro > y->transfer.micro;
}

void schedule_moments_find(struct schedule_moments *m, const struct schedule_order *order)
{
	*m = (struct schedule_moments){.list = calloc((size_t)order->count * 2, sizeof *m->list)};
	check(m->list);
	for (int i = 0; i < order->count; i++) {
		const struct schedule_work *w = &order->works[i];
		if (w->kind == ACTION_BACKWARD_WEIGHT)
			continue;
		int boundary = w->kind == ACTION_FORWARD ? BOUNDARY_ACTIVATION : BOUNDARY_GRADIENT;
		add_moment(m, order, w, boundary, false);
		add_moment(m, order, w, boundary, true);
	}
	qsort(m->list, (size_t)m->count, sizeof *m->list, compare_moments);
}

void schedule_moments_finish(struct schedule_moments *m)
{
	free(m->list);
	*m = (struct schedule_moments){0};
}

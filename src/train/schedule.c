#include "train/schedule.h"

#include <limits.h>
#include <stdlib.h>

#include "base/error.h"
#include "train/schedule_moments.h"

static int least(int a, int b)
{
	return a < b ? a : b;
}

bool schedule_possible(const struct schedule_options *o)
{
	bool one_chunk = o->kind == SCHEDULE_1F1B || o->kind == SCHEDULE_ZERO_BUBBLE || o->stages == 1;
	if (o->stage < 0 || o->stage >= o->stages || o->micros < 1)
		return false;
	return o->chunks == 1 || (o->chunks > 1 && !one_chunk);
}

int schedule_slots(const struct schedule_options *o)
{
	check(schedule_possible(o));
	int group = least(o->stages, o->micros);
	switch (o->kind) {
	case SCHEDULE_1F1B:
		return least(o->stages - o->stage, o->micros);
	case SCHEDULE_INTERLEAVED:
		return (o->chunks - 1) * group + least(2 * (o->stages - 1 - o->stage) + 1, o->micros);
	case SCHEDULE_ZERO_BUBBLE:
		return group;
	case SCHEDULE_FORWARD:
		break;
	}
	return 1;
}

/* Places of one kind: slots or buffers. */
struct pool {
	struct place {
		enum { PLACE_FREE, PLACE_HELD, PLACE_SENDING } state;
		int exchanges; /* up to the last one that used it; 0: nothing to wait for */
	} *places;
	int count; /* ever used */
};

/* Where a (chunk, micro-batch) pair is kept. */
struct pair {
	int slot, input, output, gradient;
};

struct maker {
	struct schedule *s;
	struct schedule_order order;
	struct schedule_moments moments;
	int next; /* of the moments */
	struct pool slots, inputs, outputs, gradients;
	struct pair *pairs; /* [chunks, micros] */
};

static int pool_take(struct pool *p)
{
	int i = 0;
	while (p->places[i].state != PLACE_FREE)
		i++;
	p->places[i].state = PLACE_HELD;
	if (i == p->count)
		p->count++;
	return i;
}

static void pool_sent(struct pool *p)
{
	for (int i = 0; i < p->count; i++)
		if (p->places[i].state == PLACE_SENDING)
			p->places[i].state = PLACE_FREE;
}

static struct pair *pair_of(struct maker *k, int chunk, int micro)
{
	return &k->pairs[chunk * k->order.options.micros + micro];
}

/* Adds an exchange of all transfers left that belong to moments before `time`; more only if one cannot hold them. */
static void exchange(struct maker *k, int time)
{
	struct action *a = NULL;
	for (; k->next < k->moments.count && k->moments.list[k->next].time < time; k->next++) {
		struct action_transfer *t = &k->moments.list[k->next].transfer;
		struct pair *at = pair_of(k, t->chunk, t->micro);
		struct pool *pool;

		if (!a || a->count == ACTION_TRANSFERS) {
			a = &k->s->actions[k->s->count++];
			*a = (struct action){.kind = ACTION_EXCHANGE, .micro = ACTION_NONE, .chunk = ACTION_NONE,
					     .slot = ACTION_NONE, .input = ACTION_NONE, .output = ACTION_NONE,
					     .gradient = ACTION_NONE};
			k->s->exchanges++;
		}
		if (t->boundary == BOUNDARY_GRADIENT) {
			pool = &k->gradients;
			t->buffer = t->send ? at->gradient : (at->gradient = pool_take(pool));
		} else if (t->send) {
			pool = &k->outputs;
			t->buffer = at->output;
		} else {
			pool = &k->inputs;
			t->buffer = at->input = pool_take(pool);
		}
		pool->places[t->buffer].exchanges = k->s->exchanges;
		if (t->send)
			pool->places[t->buffer].state = PLACE_SENDING;
		a->transfers[a->count++] = *t;
	}
}

/* The buffer of a pool that an action uses, which waits for the exchange that used it last. */
static int use(struct action *a, struct pool *pool, int place)
{
	if (pool->places[place].exchanges > a->after)
		a->after = pool->places[place].exchanges;
	pool->places[place].exchanges = 0; /* what is computed later need not wait for it again */
	return place;
}

static void forward(struct maker *k, struct action *a, struct pair *at)
{
	int virtual = a->chunk * k->order.options.stages + k->order.options.stage;
	bool last = virtual == k->order.options.stages * k->order.options.chunks - 1;

	if (virtual == 0)
		at->input = pool_take(&k->inputs);
	at->slot = pool_take(&k->slots);
	a->input = use(a, &k->inputs, at->input);
	if (!last)
		a->output = use(a, &k->outputs, at->output = pool_take(&k->outputs));
	else if (k->order.options.kind != SCHEDULE_FORWARD)
		a->gradient = use(a, &k->gradients, at->gradient = pool_take(&k->gradients));
}

static void compute(struct maker *k, const struct schedule_work *w)
{
	struct pair *at = pair_of(k, w->chunk, w->micro);
	struct action *a = &k->s->actions[k->s->count++];
	bool ends = w->kind == ACTION_BACKWARD || w->kind == ACTION_BACKWARD_WEIGHT ||
		    k->order.options.kind == SCHEDULE_FORWARD;

	*a = (struct action){.kind = w->kind, .micro = w->micro, .chunk = w->chunk,
			     .input = ACTION_NONE, .output = ACTION_NONE, .gradient = ACTION_NONE};
	if (w->kind == ACTION_FORWARD)
		forward(k, a, at);
	else if (w->kind != ACTION_BACKWARD_WEIGHT)
		a->gradient = use(a, &k->gradients, at->gradient);
	a->slot = at->slot;
	if (a->gradient >= 0 && w->kind != ACTION_FORWARD && w->chunk == 0 && k->order.options.stage == 0)
		k->gradients.places[at->gradient].state = PLACE_FREE;
	if (ends) {
		k->slots.places[at->slot].state = PLACE_FREE;
		k->inputs.places[at->input].state = PLACE_FREE;
	}
	/* A send goes on beside the one action behind it; those after that may take its buffer, and wait. */
	pool_sent(&k->outputs);
	pool_sent(&k->gradients);
}

static void *take(size_t count, size_t size)
{
	void *p = calloc(count, size);
	check(p);
	return p;
}

void schedule_make(struct schedule *s, const struct schedule_options *o)
{
	check(schedule_possible(o));
	size_t pairs = (size_t)o->chunks * (size_t)o->micros;
	struct maker k = {.s = s};
	struct pool *pools[] = {&k.slots, &k.inputs, &k.outputs, &k.gradients};

	schedule_order_make(&k.order, o);
	*s = (struct schedule){.actions = take(pairs * 7, sizeof *s->actions)}; /* three works, four transfers a pair */
	schedule_moments_find(&k.moments, &k.order);
	k.pairs = take(pairs, sizeof *k.pairs);
	for (int i = 0; i < 4; i++)
		pools[i]->places = take(pairs + 1, sizeof *pools[i]->places);
	for (int i = 0; i < k.order.count; i++) {
		const struct schedule_work *w = &k.order.works[i];
		/* Two, so that this work does not wait for what it does not need. */
		exchange(&k, w->start - k.order.transfer + 1); /* there when it begins */
		exchange(&k, w->end);                          /* begins before it ends */
		compute(&k, w);
	}
	exchange(&k, INT_MAX);
	s->slots = k.slots.count;
	s->inputs = k.inputs.count;
	s->outputs = k.outputs.count;
	s->gradients = k.gradients.count;
	check(s->slots == schedule_slots(o));
	schedule_order_finish(&k.order);
	schedule_moments_finish(&k.moments);
	free(k.pairs);
	for (int i = 0; i < 4; i++)
		free(pools[i]->places);
}

void schedule_finish(struct schedule *s)
{
	free(s->actions);
	*s = (struct schedule){0};
}

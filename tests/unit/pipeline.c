#include "pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
	PLACES = PIPELINE_STAGES * (PIPELINE_CHUNKS + 2), /* more than a list should need */
	EXCHANGES = PIPELINE_MICROS * PIPELINE_CHUNKS * 4,
	UNKNOWN = -1,
};

/* A slot or buffer by what the list has said so far. */
struct place {
	enum { EMPTY, RECEIVING, READY, MADE, SENDING } state; /* gradient: READY is of the output, MADE of the input */
	int chunk, micro;
	int exchange; /* how many exchanges up to the one that used it last */
};

/* An exchange that the rank has come to. */
struct queued {
	const struct action *action;
	int from;   /* when everything before it was computed */
	int done;   /* a bit for each transfer that is matched */
	int latest; /* end of those */
	int end;    /* of all */
};

struct state {
	struct pipeline_rank *rank;
	int at, now;
	int queued, head, last_end;
	int forwards[PIPELINE_CHUNKS], backwards[PIPELINE_CHUNKS], weights[PIPELINE_CHUNKS];
	int in_flight, waiting;
	struct place slots[PLACES], inputs[PLACES], outputs[PLACES], gradients[PLACES];
	struct queued queue[EXCHANGES]; /* last, since it need not be cleared */
};

static struct pipeline p;
static struct state states[PIPELINE_STAGES];
static struct pipeline_costs costs;

static bool is_first(const struct state *s, int chunk)
{
	return chunk == 0 && s == states;
}

static bool is_last(const struct state *s, int chunk)
{
	return chunk == p.options.chunks - 1 && s == &states[p.options.stages - 1];
}

static struct place *place_at(struct place *places, int count, int index)
{
	assert_true(index >= 0 && index < count && count <= PLACES);
	return &places[index];
}

static void holds(const struct place *place, int chunk, int micro)
{
	assert_int_equal(place->chunk, chunk);
	assert_int_equal(place->micro, micro);
}

/* The action takes a place that must be free: empty, or sent by an exchange that it waits for. */
static void fill(struct place *place, const struct action *a, int state, int *needs)
{
	if (place->state == SENDING)
		*needs = place->exchange > *needs ? place->exchange : *needs;
	else
		assert_int_equal(place->state, EMPTY);
	*place = (struct place){.state = state, .chunk = a->chunk, .micro = a->micro};
}

/* The action reads a place, whose receive it waits for. */
static void read(struct place *place, const struct action *a, int *needs)
{
	holds(place, a->chunk, a->micro);
	if (place->state == RECEIVING)
		*needs = place->exchange > *needs ? place->exchange : *needs;
	else
		assert_int_equal(place->state, READY);
	place->state = READY;
}

static void forward(struct state *s, const struct action *a, int *needs)
{
	const struct schedule *l = &s->rank->list;
	struct place *input = place_at(s->inputs, l->inputs, a->input);

	assert_int_equal(a->micro, s->forwards[a->chunk]++);
	fill(place_at(s->slots, l->slots, a->slot), a, READY, needs);
	if (is_first(s, a->chunk))
		fill(input, a, READY, needs);
	else
		read(input, a, needs);
	if (!is_last(s, a->chunk))
		fill(place_at(s->outputs, l->outputs, a->output), a, MADE, needs);
	else
		assert_int_equal(a->output, ACTION_NONE);
	if (is_last(s, a->chunk) && p.options.kind != SCHEDULE_FORWARD)
		fill(place_at(s->gradients, l->gradients, a->gradient), a, READY, needs);
	else
		assert_int_equal(a->gradient, ACTION_NONE);
	if (++s->in_flight > s->rank->in_flight)
		s->rank->in_flight = s->in_flight;
}

static void backward(struct state *s, const struct action *a, int *needs)
{
	struct place *gradient = place_at(s->gradients, s->rank->list.gradients, a->gradient);

	assert_int_equal(a->micro, s->backwards[a->chunk]++);
	holds(place_at(s->slots, s->rank->list.slots, a->slot), a->chunk, a->micro);
	assert_int_equal(s->slots[a->slot].state, READY);
	read(gradient, a, needs);
	gradient->state = is_first(s, a->chunk) ? EMPTY : MADE;
	if (a->kind == ACTION_BACKWARD_INPUT)
		s->slots[a->slot].state = MADE; /* its weight part may come */
	if (a->kind == ACTION_BACKWARD_INPUT && ++s->waiting > s->rank->waiting)
		s->rank->waiting = s->waiting;
}

/* The last use of a slot, which frees it and its input. */
static void leave(struct state *s, const struct action *a)
{
	struct place *slot = place_at(s->slots, s->rank->list.slots, a->slot);
	struct place *input = s->inputs;

	holds(slot, a->chunk, a->micro);
	assert_int_equal(slot->state, a->kind == ACTION_BACKWARD_WEIGHT ? MADE : READY);
	slot->state = EMPTY;
	while (input->state != READY || input->chunk != a->chunk || input->micro != a->micro)
		place_at(s->inputs, s->rank->list.inputs, (int)(++input - s->inputs));
	input->state = EMPTY;
	s->in_flight--;
	s->waiting -= a->kind == ACTION_BACKWARD_WEIGHT;
}

/* Computes the action if what it waits for has ended. */
static bool compute(struct state *s, const struct action *a)
{
	int from = a->after > 0 ? UNKNOWN : 0, needs = 0;
	assert_in_range(a->after, 0, s->queued);
	assert_in_range(a->chunk, 0, p.options.chunks - 1);
	if (a->after > 0)
		from = s->queue[a->after - 1].end;
	if (costs.synchronous && s->queued > 0)
		from = s->queue[s->queued - 1].end;
	if (from == UNKNOWN)
		return false;

	int start = from > s->now ? from : s->now;
	int end = start + (a->kind == ACTION_FORWARD ? costs.forward : 0) +
		  (a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_INPUT ? costs.input : 0) +
		  (a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_WEIGHT ? costs.weight : 0);
	if (a->kind == ACTION_FORWARD)
		forward(s, a, &needs);
	if (a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_INPUT)
		backward(s, a, &needs);
	if (a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_WEIGHT)
		assert_int_equal(a->micro, s->weights[a->chunk]++);
	if (a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_WEIGHT || p.options.kind == SCHEDULE_FORWARD)
		leave(s, a);
	assert_int_equal(a->after, needs);
	s->now = end;
	s->rank->spans[s->rank->span_count++] = (struct pipeline_span){a, start, end};
	p.end = end > p.end ? end : p.end;
	return true;
}

static struct place *buffer_of(struct state *s, const struct action_transfer *t)
{
	const struct schedule *l = &s->rank->list;
	if (t->boundary == BOUNDARY_GRADIENT)
		return place_at(s->gradients, l->gradients, t->buffer);
	return t->send ? place_at(s->outputs, l->outputs, t->buffer) : place_at(s->inputs, l->inputs, t->buffer);
}

/* Queues the exchange: places change hands as of here. A receive may follow the send of an earlier exchange. */
static void post(struct state *s, const struct action *a)
{
	assert_in_range(a->count, 1, ACTION_TRANSFERS);
	s->queue[s->queued++] = (struct queued){.action = a, .from = s->now, .end = UNKNOWN};
	for (int i = 0; i < a->count; i++) {
		const struct action_transfer *t = &a->transfers[i];
		struct place *b = buffer_of(s, t);
		if (t->send) {
			holds(b, t->chunk, t->micro);
			assert_int_equal(b->state, MADE);
			b->state = SENDING;
		} else {
			assert_true(b->state == EMPTY || (b->state == SENDING && b->exchange < s->queued));
			*b = (struct place){.state = RECEIVING, .chunk = t->chunk, .micro = t->micro};
		}
		b->exchange = s->queued;
	}
}

/* The first transfer with a peer, in that direction, that the rank's current exchange still waits for; −1: none. */
static int open_transfer(const struct state *s, int peer, bool send)
{
	if (s->head == s->queued)
		return -1;
	const struct queued *q = &s->queue[s->head];
	for (int i = 0; i < q->action->count; i++)
		if (!(q->done >> i & 1) && q->action->transfers[i].peer == peer && q->action->transfers[i].send == send)
			return i;
	return -1;
}

static int begin(const struct state *s)
{
	const struct queued *q = &s->queue[s->head];
	return q->from > s->last_end ? q->from : s->last_end;
}

static void arrive(struct queued *q, int i, int time)
{
	q->done |= 1 << i;
	q->latest = time > q->latest ? time : q->latest;
}

/* Matches one send of a rank to `to`, if both sides wait for it. */
static bool match(struct state *s, struct state *to)
{
	int i = open_transfer(s, (int)(to - states), true), j = open_transfer(to, (int)(s - states), false);
	if (i < 0 || j < 0)
		return false;

	struct queued *mine = &s->queue[s->head], *other = &to->queue[to->head];
	const struct action_transfer *a = &mine->action->transfers[i], *b = &other->action->transfers[j];
	int from = a->chunk * p.options.stages + b->peer, into = b->chunk * p.options.stages + a->peer;
	assert_int_equal(a->boundary, b->boundary);
	assert_int_equal(a->micro, b->micro);
	assert_int_equal(into - from, a->boundary == BOUNDARY_ACTIVATION ? 1 : -1);

	int start = begin(s) > begin(to) ? begin(s) : begin(to);
	arrive(mine, i, start + costs.transfer);
	arrive(other, j, start + costs.transfer);
	return true;
}

/* One round for a rank; whether anything moved. */
static bool play(struct state *s)
{
	bool moved = false;
	for (const struct action *a; s->at < s->rank->list.count; s->at++) {
		a = &s->rank->list.actions[s->at];
		if (a->kind == ACTION_EXCHANGE)
			post(s, a);
		else if (!compute(s, a))
			break;
		moved = true;
	}
	while (s->head < s->queued) {
		struct queued *q = &s->queue[s->head];
		for (int i = 0; i < q->action->count; i++) {
			struct state *peer = &states[q->action->transfers[i].peer];
			if (!(q->done >> i & 1))
				moved |= q->action->transfers[i].send ? match(s, peer) : match(peer, s);
		}
		if (q->done != (1 << q->action->count) - 1)
			break;
		s->last_end = q->end = q->latest;
		s->head++;
		moved = true;
	}
	return moved;
}

static void begin_with(const struct schedule_options *o, const struct pipeline_costs *c)
{
	p.options = *o;
	p.end = 0;
	costs = *c;
	for (int i = 0; i < o->stages; i++) {
		struct pipeline_rank *r = &p.ranks[i];
		schedule_finish(&r->list);
		memset(&states[i], 0, offsetof(struct state, queue));
		states[i].rank = r;
		r->span_count = r->in_flight = r->waiting = 0;
		p.options.stage = i;
		schedule_make(&r->list, &p.options);
	}
}

/* Everything was done, and no place is still in use. */
static void ended(const struct state *s)
{
	const struct schedule *l = &s->rank->list;
	int backwards = p.options.kind == SCHEDULE_FORWARD ? 0 : p.options.micros;

	assert_int_equal(s->at, l->count);
	assert_int_equal(s->head, s->queued);
	assert_int_equal(s->queued, l->exchanges);
	for (int c = 0; c < p.options.chunks; c++) {
		assert_int_equal(s->forwards[c], p.options.micros);
		assert_int_equal(s->backwards[c], backwards);
		assert_int_equal(s->weights[c], backwards);
	}
	for (int i = 0; i < PLACES; i++) {
		assert_int_equal(s->slots[i].state, EMPTY);
		assert_int_equal(s->inputs[i].state, EMPTY);
		assert_true(s->outputs[i].state == EMPTY || s->outputs[i].state == SENDING);
		assert_true(s->gradients[i].state == EMPTY || s->gradients[i].state == SENDING);
	}
}

const struct pipeline *pipeline_play(const struct schedule_options *o, const struct pipeline_costs *c)
{
	begin_with(o, c);
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < o->stages; i++)
			moved |= play(&states[i]);
	}
	for (int i = 0; i < o->stages; i++)
		ended(&states[i]);
	return &p;
}

#include "plan/simulate_rank.h"

#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

static const double micro = 1e-6;

bool rank_crosses(const struct record_item *item)
{
	return item->kind == RECORD_COMM && (strcmp(item->group, "pipeline") == 0 || strcmp(item->group, "embedding") == 0 ||
					     strcmp(item->group, "world") == 0);
}

void rank_open(struct rank *r, const struct simulate_options *o, int stage)
{
	const struct record *record = o->records[stage];
	*r = (struct rank){.o = o, .record = record, .stage = stage};
	r->seconds = calloc((size_t)record->item_count + 1, sizeof *r->seconds);
	r->closed = calloc((size_t)record->event_count + 1, sizeof *r->closed);
	check(r->seconds && r->closed);
	for (int i = 0; i < record->item_count; i++)
		r->seconds[i] = timing_item(o->timing, &record->items[i]);
}

void rank_close(struct rank *r)
{
	for (int q = 0; q < QUEUES; q++)
		free(r->queue[q].done);
	free(r->seconds);
	free(r->closed);
}

/* The queue's items so far are done at `end`. */
static void note(struct rank_queue *q, double end)
{
	q->end = end;
	if (q->count > 0 && q->done[q->count - 1].count == q->queued) {
		q->done[q->count - 1].end = end;
		return;
	}
	if (q->count == q->room) {
		q->room = q->room ? 2 * q->room : 64;
		q->done = realloc(q->done, (size_t)q->room * sizeof *q->done);
		check(q->done);
	}
	q->done[q->count++] = (struct done){q->queued, end};
}

/* When the first `count` items of the queue are done. */
static double done_at(const struct rank_queue *q, int64_t count)
{
	int low = 0, high = q->count;
	if (count <= 0 || q->count == 0)
		return 0;
	while (low < high) {
		int middle = (low + high) / 2;
		if ((int64_t)q->done[middle].count >= count)
			high = middle;
		else
			low = middle + 1;
	}
	return low < q->count ? q->done[low].end : q->end;
}

static enum cause cause_of(enum queue q)
{
	static const enum cause causes[QUEUES] = {
		[Q_COMPUTE] = CAUSE_COMPUTE, [Q_TENSOR] = CAUSE_TENSOR, [Q_CONTEXT] = CAUSE_CONTEXT,
		[Q_PIPE] = CAUSE_PIPELINE, [Q_DATA] = CAUSE_DATA,
		[Q_COPY] = CAUSE_COMPUTE,
	};
	return causes[q];
}

static double overlap(double begin, double end, const struct rank_queue *q)
{
	double from = begin > q->busy_begin ? begin : q->busy_begin, to = end < q->end ? end : q->end;
	return to > from ? to - from : 0;
}

/* Seconds from `begin` on with the slowdown beside collectives. */
static double slowed(const struct rank *r, double begin, double seconds)
{
	double more = r->o->timing->hardware->overlap_slowdown.value - 1;
	double beside = overlap(begin, begin + seconds, &r->queue[Q_TENSOR]) + overlap(begin, begin + seconds, &r->queue[Q_DATA]) +
			overlap(begin, begin + seconds, &r->queue[Q_CONTEXT]);
	return seconds + more * (beside < seconds ? beside : seconds);
}

static void spend(struct rank *r, enum cause c, double seconds)
{
	r->spent[r->optimizer && c == CAUSE_COMPUTE ? CAUSE_OPTIMIZER : c] += seconds;
}

/* The compute queue stands from its end to `begin`. */
static void idle(struct rank *r, double begin)
{
	struct rank_queue *q = &r->queue[Q_COMPUTE];
	double gap = begin - q->end;
	if (gap <= 0)
		return;
	double waited = q->ready > q->end ? q->ready - q->end : 0, own = q->own < waited ? q->own : waited;
	waited = waited < gap ? waited : gap;
	if (q->cause == CAUSE_BUBBLE) {
		spend(r, q->own_cause, own);
		spend(r, CAUSE_BUBBLE, waited - own);
	} else {
		spend(r, q->cause, waited);
	}
	spend(r, CAUSE_COMPUTE, gap - waited); /* the host */
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

static void box(const struct rank *r, enum queue q, const char *name, const struct stretch *s, double begin, double end)
{
	if (r->o->box && r->pass == 1)
		r->o->box(r->o->context, &(struct simulated_box){
			.stage = r->stage, .queue = q, .name = name, .chunk = s ? s->chunk : -1, .micro = s ? s->micro : -1,
			.begin = begin - r->begin, .end = end - r->begin,
		});
}

static double begin_of(struct rank *r, enum queue q)
{
	r->host += r->o->timing->hardware->launch_us.value * micro;
	return later(later(r->queue[q].end, r->queue[q].ready), r->host);
}

/* Computing does not go on before `end`. */
static void stand(struct rank *r, double end, enum cause cause)
{
	struct rank_queue *q = &r->queue[Q_COMPUTE];
	if (end <= q->ready)
		return;
	q->ready = end;
	q->cause = cause;
}

/* What an exchange takes by itself, once both ends have come. */
static double longest_transfer(const struct rank *r, const struct record_item *item)
{
	double longest = 0;
	for (int i = 0; i < item->transfers; i++)
		longest = later(longest, timing_transfer(r->o->timing, r->stage, item->transfer[i].peer, item->transfer[i].bytes));
	return longest;
}

/* An item that concerns this rank alone. */
static void play_item(struct rank *r, const struct record_item *item, double seconds, bool show)
{
	struct rank_queue *q = &r->queue[item->queue];
	double begin = begin_of(r, item->queue);
	if (item->queue == Q_COMPUTE) {
		idle(r, begin);
		seconds = slowed(r, begin, seconds);
		spend(r, CAUSE_COMPUTE, seconds);
	} else if (begin > q->end) {
		q->busy_begin = begin;
	}
	q->queued++;
	q->crossed = false;
	note(q, begin + seconds);
	if (r->o->timing->stack->no_overlap && (item->queue == Q_TENSOR || item->queue == Q_DATA))
		stand(r, begin + seconds, cause_of(item->queue));
	if (show && item->queue != Q_COPY)
		box(r, item->queue, item->name, NULL, begin, begin + seconds);
}

/* Events of a span from r->event on; false: stopped before one that needs other ranks. */
static bool play(struct rank *r, const struct record_span *span, bool show)
{
	for (; r->event < span->end; r->event++) {
		const struct record_event *e = &r->record->events[r->event];
		struct rank_queue *q = &r->queue[e->queue];
		if (e->kind == EVENT_ITEM) {
			const struct record_item *item = &r->record->items[e->item];
			if (r->pending && r->pending->queue == item->queue)
				return false;
			if (!rank_crosses(item)) {
				play_item(r, item, r->seconds[e->item], show);
				continue;
			}
			if (r->pending)
				return false;
			r->pending = item;
			r->pending_begin = begin_of(r, item->queue);
			if (r->o->timing->stack->synchronous_exchange)
				stand(r, r->pending_begin + longest_transfer(r, item), CAUSE_PIPELINE);
			q->queued++;
			continue;
		}
		bool open = r->pending && r->pending->queue == e->on &&
			    (int64_t)r->base[e->on] + e->count >= (int64_t)r->queue[e->on].queued;
		if (open)
			return false;
		double done = done_at(&r->queue[e->on], (int64_t)r->base[e->on] + e->count);
		if (e->kind == EVENT_FINISH) {
			r->host = later(r->host, done);
		} else if (done > q->ready) {
			q->ready = done;
			q->cause = r->queue[e->on].crossed ? CAUSE_BUBBLE : cause_of(e->on);
			q->own = r->queue[e->on].crossed ? r->queue[e->on].last_own : 0;
			q->own_cause = e->on == Q_PIPE ? CAUSE_PIPELINE : CAUSE_DATA;
		}
	}
	return true;
}

static bool is_closed(const struct record *record, const struct record_span *span)
{
	if (!span->stretch.name || span->items[Q_PIPE] > 0 || span->items[Q_DATA] > 0)
		return false;
	for (int i = span->begin; i < span->end; i++) {
		const struct record_event *e = &record->events[i];
		if (e->kind == EVENT_FINISH || (e->kind != EVENT_ITEM && e->count > 0 && (e->on == Q_PIPE || e->on == Q_DATA)))
			return false;
		if (e->kind == EVENT_ITEM && rank_crosses(&record->items[e->item]))
			return false;
	}
	return true;
}

/* The span, alone on a rank that has done nothing before. */
static struct closed *closed_of(struct rank *r, const struct record_span *span)
{
	struct closed *c = &r->closed[span->begin];
	if (c->known)
		return c;
	c->known = true;
	c->is = is_closed(r->record, span);
	if (!c->is)
		return c;
	struct simulate_options quiet = *r->o;
	quiet.box = NULL;
	struct rank alone = {.o = &quiet, .record = r->record, .stage = r->stage, .seconds = r->seconds, .event = span->begin};
	check(play(&alone, span, false));
	c->host = alone.host;
	c->seconds = later(later(alone.queue[Q_COMPUTE].end, alone.queue[Q_TENSOR].end), alone.queue[Q_CONTEXT].end);
	memcpy(c->cause, alone.spent, sizeof c->cause);
	c->cause[CAUSE_TENSOR] += c->seconds - alone.queue[Q_COMPUTE].end;
	for (int q = 0; q < QUEUES; q++)
		free(alone.queue[q].done);
	return c;
}

static void play_closed(struct rank *r, const struct record_span *span, const struct closed *c)
{
	struct rank_queue *q = &r->queue[Q_COMPUTE];
	double begin = later(later(q->end, q->ready), r->host);
	begin = later(later(begin, r->queue[Q_TENSOR].end), r->queue[Q_CONTEXT].end);
	double seconds = slowed(r, begin, c->seconds);
	idle(r, begin);
	for (int i = 0; i < CAUSES; i++)
		spend(r, (enum cause)i, c->cause[i]);
	spend(r, CAUSE_COMPUTE, seconds - c->seconds);
	r->host += c->host;
	for (int i = 0; i < QUEUES; i++) {
		if (span->items[i] == 0)
			continue;
		r->queue[i].queued += (uint64_t)span->items[i];
		note(&r->queue[i], begin + seconds);
		r->queue[i].busy_begin = begin + seconds; /* what overlapped inside is in the span's time */
	}
	box(r, Q_COMPUTE, span->stretch.name, &span->stretch, begin, begin + seconds);
}

double rank_end(const struct rank *r)
{
	return later(r->host, r->queue[Q_COMPUTE].end);
}

/* The next step begins; what was queued last goes on. */
static void next_pass(struct rank *r)
{
	double compute = r->queue[Q_COMPUTE].end;
	r->pass++;
	r->span = 0;
	r->begin = rank_end(r);
	memset(r->spent, 0, sizeof r->spent);
	r->spent[CAUSE_COMPUTE] = compute - r->begin; /* its first idle time is counted from there on */
}

static bool shown(const struct rank *r)
{
	return r->o->box && r->pass == 1;
}

bool rank_run(struct rank *r)
{
	if (r->span == r->record->span_count && r->pass == 0 && !r->pending)
		next_pass(r);
	while (r->span < r->record->span_count) {
		const struct record_span *span = &r->record->spans[r->span];
		if (span->begin == span->end) { /* the stretch after it begins with the same event */
			r->span++;
			continue;
		}
		if (r->event == 0) {
			for (int q = 0; q < QUEUES; q++)
				r->base[q] = r->queue[q].queued;
			r->optimizer = !span->stretch.name && r->span > 0 && r->span + 1 == r->record->span_count;
			struct closed *c = closed_of(r, span);
			if (c->is) {
				play_closed(r, span, c);
				r->span++;
				continue;
			}
			r->event = span->begin;
		}
		if (!play(r, span, shown(r)))
			return false;
		r->event = 0;
		r->span++;
	}
	if (r->pending)
		return false;
	return r->pass == 1 ? true : rank_run(r);
}

void rank_resolve(struct rank *r, double end, double own)
{
	struct rank_queue *q = &r->queue[r->pending->queue];
	if (r->pending_begin > q->end)
		q->busy_begin = end - own;
	q->crossed = true;
	q->last_own = own;
	/* The item is the last one queued: nothing is queued behind a pending one. */
	note(q, end);
	box(r, r->pending->queue, r->pending->name, NULL, end - own, end);
	r->pending = NULL;
}

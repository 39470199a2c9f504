#include "dev/cost/record.h"

#include <stdlib.h>
#include <string.h>

void record_init(struct record *r)
{
	*r = (struct record){0};
}

void record_finish(struct record *r)
{
	free(r->items);
	free(r->events);
	free(r->spans);
	*r = (struct record){0};
}

/* Room for one more of `size` bytes. */
static void *grown(void *list, int count, int *room, size_t size)
{
	if (count < *room)
		return list;
	*room = *room ? 2 * *room : 64;
	list = realloc(list, (size_t)*room * size);
	check(list);
	return list;
}

static struct record_span *new_span(struct record *r)
{
	r->spans = grown(r->spans, r->span_count, &r->span_room, sizeof *r->spans);
	return &r->spans[r->span_count++];
}

/* The span that events now go to. */
static void open_span(struct record *r, const struct stretch *s)
{
	*new_span(r) = (struct record_span){.stretch = s ? *s : (struct stretch){0}, .begin = r->event_count, .end = r->event_count};
	memcpy(r->base, r->queued, sizeof r->base);
	r->open = true;
}

static void close_span(struct record *r)
{
	if (!r->open)
		return;
	const struct record_span *span = &r->spans[r->span_count - 1];
	r->open = false;
	if (span->begin == span->end && !span->stretch.name)
		r->span_count--;
}

static bool alike(const struct stretch *a, const struct stretch *b)
{
	return a->name && a->chunk == b->chunk && a->variant == b->variant && strcmp(a->name, b->name) == 0;
}

bool record_begin(struct record *r, const struct stretch *s)
{
	check(!r->open || !r->spans[r->span_count - 1].stretch.name); /* they do not nest */
	close_span(r);
	/* What comes again came lately. */
	for (int i = r->span_count - 1; i >= 0; i--) {
		if (!alike(&r->spans[i].stretch, s))
			continue;
		struct record_span *span = new_span(r);
		*span = r->spans[i];
		span->stretch = *s;
		for (int q = 0; q < QUEUES; q++)
			r->queued[q] += (uint64_t)span->items[q];
		return false;
	}
	open_span(r, s);
	return true;
}

void record_end(struct record *r)
{
	check(r->open && r->spans[r->span_count - 1].stretch.name);
	close_span(r);
}

static void add(struct record *r, const struct record_event *e)
{
	if (!r->open)
		open_span(r, NULL);
	r->events = grown(r->events, r->event_count, &r->event_room, sizeof *r->events);
	r->events[r->event_count++] = *e;
	r->spans[r->span_count - 1].end = r->event_count;
}

void record_add(struct record *r, const struct record_item *item)
{
	r->items = grown(r->items, r->item_count, &r->item_room, sizeof *r->items);
	r->items[r->item_count] = *item;
	add(r, &(struct record_event){.kind = EVENT_ITEM, .item = r->item_count++, .queue = item->queue});
	r->queued[item->queue]++;
	r->spans[r->span_count - 1].items[item->queue]++;
}

static int64_t behind(struct record *r, struct mark m)
{
	if (!r->open)
		open_span(r, NULL);
	return (int64_t)m.count - (int64_t)r->base[m.queue];
}

void record_wait(struct record *r, enum queue q, struct mark m)
{
	if (m.count > 0)
		add(r, &(struct record_event){.kind = EVENT_WAIT, .queue = q, .on = m.queue, .count = behind(r, m)});
}

void record_host_waits(struct record *r, struct mark m)
{
	if (m.count > 0)
		add(r, &(struct record_event){.kind = EVENT_FINISH, .on = m.queue, .count = behind(r, m)});
}

void record_each(const struct record *r, void (*f)(void *context, const struct record_item *item), void *context)
{
	for (int i = 0; i < r->span_count; i++)
		for (int e = r->spans[i].begin; e < r->spans[i].end; e++)
			if (r->events[e].kind == EVENT_ITEM)
				f(context, &r->items[r->events[e].item]);
}

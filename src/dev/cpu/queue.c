#include "dev/cpu/queue.h"

#include <time.h>

#include "base/clock.h"

static bool reached(const struct queues *s, struct mark m)
{
	return s->list[m.queue].done >= m.count;
}

static bool gate_advance(struct work *w)
{
	struct gate *g = (struct gate *)w;
	if (!reached(g->queues, g->mark))
		return false;
	g->used = false;
	return true;
}

static void append(struct queues *s, enum queue q, struct work *w)
{
	w->next = NULL;
	if (s->list[q].tail)
		s->list[q].tail->next = w;
	else
		s->list[q].head = w;
	s->list[q].tail = w;
	s->list[q].posted++;
}

/* The owner may reuse a work as soon as its advance has said that it is done, so its link is read before. */
static void advance(struct queues *s, enum queue q)
{
	struct work *w;
	while ((w = s->list[q].head)) {
		struct work *next = w->next;
		if (!w->advance(w))
			return;
		s->list[q].head = next;
		if (!next)
			s->list[q].tail = NULL;
		s->list[q].done++;
	}
}

void queues_poll(struct queues *s)
{
	if (s->polling)
		return;
	s->polling = true;
	for (int q = 0; q < QUEUES; q++)
		if (s->list[q].head)
			advance(s, (enum queue)q);
	s->polling = false;
}

/* The item that a wait for m stands behind: the head of its queue or, where that is a gate, what the gate waits for. */
static const struct work *culprit(const struct queues *s, struct mark m)
{
	const struct work *w = s->list[m.queue].head;
	for (int hops = 0; w->advance == gate_advance && hops < QUEUES; hops++)
		w = s->list[((const struct gate *)(const void *)w)->mark.queue].head;
	return w;
}

/* A peer that is nearly there is met soonest by asking again and again; one that is still computing may be on this very
 * core, which asking would take from it. Yielding is no way between: on a busy machine the core comes back a whole time
 * slice later, while one who slept is let in at once. */
static void rest(double waited)
{
	enum { PATIENCE_US = 50, NAP_US = 20 };
	if (waited >= 1e-6 * PATIENCE_US)
		nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
}

void queues_finish(struct queues *s, struct mark m, double timeout)
{
	queues_poll(s);
	if (reached(s, m))
		return;
	check(!s->polling); /* an item that waited for an item could never end */
	double start = clock_now(), waited = 0;
	while (queues_poll(s), !reached(s, m)) {
		waited = clock_now() - start;
		if (timeout > 0 && waited > timeout) {
			const struct work *w = culprit(s, m);
			die(CODE_PEER, "waited %g s for %s in group %s", timeout, w->call, w->group);
		}
		rest(waited);
	}
}

void queues_post(struct queues *s, enum queue q, struct work *w, double timeout)
{
	check(!s->polling); /* advance has read the link of the item that would post */
	append(s, q, w);
	if (q == Q_COMPUTE)
		queues_finish(s, queues_mark(s, q), timeout);
	else
		queues_poll(s);
}

struct mark queues_mark(const struct queues *s, enum queue q)
{
	return (struct mark){.queue = q, .count = s->list[q].posted};
}

void queues_wait(struct queues *s, enum queue q, struct mark m, double timeout)
{
	queues_poll(s);
	if (q == m.queue || reached(s, m))
		return;
	for (int i = 0; q != Q_COMPUTE && i < QUEUE_GATES; i++) {
		struct gate *g = &s->gates[i];
		if (g->used)
			continue;
		*g = (struct gate){.queues = s, .mark = m, .used = true};
		g->work = (struct work){.advance = gate_advance, .call = "wait", .group = queue_name(m.queue)};
		append(s, q, &g->work);
		return;
	}
	queues_finish(s, m, timeout);
}

#include "plan/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "plan/simulate_rank.h"

const char *simulate_cause(enum cause c)
{
	static const char *const names[CAUSES] = {"compute", "tensor", "context", "pipeline", "data", "bubble", "optimizer"};
	return names[c];
}

/* Messages from one rank to another, in order: when either end came to them. */
struct channel {
	double *begin[2]; /* [room] sender, receiver */
	int count[2], room;
};

/* A collective over several stages: the n-th of its group. */
struct meeting {
	const char *group;
	int number, there;
	double begin;
};

struct play {
	const struct simulate_options *o;
	struct rank *ranks;
	struct channel *channels; /* [stages·stages] */
	struct meeting *meetings;
	int meeting_count, meeting_room;
	int *numbers; /* [stages·GROUPS] meetings that a rank has come to */
};

/* Groups that have ranks of several stages. */
enum group { GROUP_WORLD, GROUP_EMBEDDING, GROUP_PIPELINE, GROUPS };

static enum group group_of(const struct record_item *item)
{
	return strcmp(item->group, "world") == 0 ? GROUP_WORLD : strcmp(item->group, "embedding") == 0 ? GROUP_EMBEDDING : GROUP_PIPELINE;
}

static struct channel *channel_of(const struct play *p, int rank, const struct record_transfer *t)
{
	return &p->channels[t->send ? rank * p->o->stages + t->peer : t->peer * p->o->stages + rank];
}

/* The rank has come to its pending exchange: each transfer gets its number. */
static void post(struct play *p, struct rank *r)
{
	for (int i = 0; i < r->pending->transfers; i++) {
		const struct record_transfer *t = &r->pending->transfer[i];
		struct channel *c = channel_of(p, r->stage, t);
		int side = t->send ? 0 : 1;
		if (c->count[side] == c->room) {
			c->room = c->room ? 2 * c->room : 64;
			for (int k = 0; k < 2; k++) {
				c->begin[k] = realloc(c->begin[k], (size_t)c->room * sizeof *c->begin[k]);
				check(c->begin[k]);
			}
		}
		r->message[i] = c->count[side];
		c->begin[side][c->count[side]++] = r->pending_begin;
	}
}

/* Nobody is waited for. */
static bool ended_alone(const struct play *p, struct rank *r)
{
	double own = 0;
	for (int i = 0; i < r->pending->transfers; i++) {
		const struct record_transfer *t = &r->pending->transfer[i];
		double transfer = timing_transfer(p->o->timing, t->peer > 0 ? t->peer - 1 : 1, t->peer, t->bytes);
		own = transfer > own ? transfer : own;
	}
	own = r->pending->transfers ? own : timing_item(p->o->timing, r->pending);
	rank_resolve(r, r->pending_begin + own, own);
	return true;
}

/* Ends the exchange if all its peers have come to it. */
static bool exchanged(struct play *p, struct rank *r)
{
	double end = r->pending_begin, longest = 0;
	for (int i = 0; i < r->pending->transfers; i++) {
		const struct record_transfer *t = &r->pending->transfer[i];
		const struct channel *c = channel_of(p, r->stage, t);
		int at = r->message[i];
		if (at >= c->count[0] || at >= c->count[1])
			return false;
		double begin = c->begin[0][at] > c->begin[1][at] ? c->begin[0][at] : c->begin[1][at];
		double own = timing_transfer(p->o->timing, r->stage, t->peer, t->bytes);
		end = begin + own > end ? begin + own : end;
		longest = own > longest ? own : longest;
	}
	rank_resolve(r, end, longest);
	return true;
}

static struct meeting *meeting_of(struct play *p, const char *group, int number)
{
	for (int i = 0; i < p->meeting_count; i++)
		if (p->meetings[i].number == number && strcmp(p->meetings[i].group, group) == 0)
			return &p->meetings[i];
	if (p->meeting_count == p->meeting_room) {
		p->meeting_room = p->meeting_room ? 2 * p->meeting_room : 8;
		p->meetings = realloc(p->meetings, (size_t)p->meeting_room * sizeof *p->meetings);
		check(p->meetings);
	}
	p->meetings[p->meeting_count] = (struct meeting){.group = group, .number = number};
	return &p->meetings[p->meeting_count++];
}

static void come(struct play *p, struct rank *r)
{
	int number = p->numbers[r->stage * GROUPS + (int)group_of(r->pending)]++;
	struct meeting *m = meeting_of(p, r->pending->group, number);
	m->there++;
	m->begin = r->pending_begin > m->begin ? r->pending_begin : m->begin;
}

static bool met(struct play *p, struct rank *r)
{
	enum group group = group_of(r->pending);
	struct meeting *m = meeting_of(p, r->pending->group, p->numbers[r->stage * GROUPS + (int)group] - 1);
	int all = group == GROUP_EMBEDDING ? 2 : p->o->stages; /* the first stage and the last */
	if (m->there < all)
		return false;
	double own = timing_item(p->o->timing, r->pending);
	rank_resolve(r, m->begin + own, own);
	return true;
}

static bool is_exchange(const struct record_item *item)
{
	return item->what == COMM_EXCHANGE;
}

/* Whether the pending item could be ended. */
static bool ended(struct play *p, struct rank *r)
{
	if (p->o->alone)
		return ended_alone(p, r);
	return is_exchange(r->pending) ? exchanged(p, r) : met(p, r);
}

/* Takes the rank as far as it goes; true: it went somewhere. */
static bool advance(struct play *p, struct rank *r, bool *through)
{
	bool moved = false;
	for (;;) {
		const struct record_item *before = r->pending;
		*through = rank_run(r);
		if (r->pending && !before && !p->o->alone) {
			if (is_exchange(r->pending))
				post(p, r);
			else
				come(p, r);
			moved = true;
		}
		if (!r->pending || !ended(p, r))
			return moved || *through;
		moved = true;
	}
}

static void settle(const struct play *p, struct simulated_stage *stages, double *end)
{
	double begin = 0, last = 0;
	for (int i = 0; i < p->o->stages; i++) {
		begin = p->ranks[i].begin > begin ? p->ranks[i].begin : begin;
		last = rank_end(&p->ranks[i]) > last ? rank_end(&p->ranks[i]) : last;
	}
	*end = last - begin;
	for (int i = 0; i < p->o->stages; i++) {
		struct rank *r = &p->ranks[i];
		stages[i].end = rank_end(r) - begin;
		memcpy(stages[i].seconds, r->spent, sizeof r->spent);
		/* What comes behind computing: the host reads the verdict. And the others begin or end later. */
		stages[i].seconds[CAUSE_COMPUTE] += rank_end(r) - r->queue[Q_COMPUTE].end;
		stages[i].seconds[CAUSE_BUBBLE] += last - rank_end(r) - (begin - r->begin);
	}
}

double simulate(const struct simulate_options *o, struct simulated_stage *stages)
{
	struct play p = {.o = o};
	size_t count = (size_t)o->stages;
	double end;
	int through = 0;
	bool *done = calloc(count, sizeof *done);

	p.ranks = calloc(count, sizeof *p.ranks);
	p.channels = calloc(count * count, sizeof *p.channels);
	p.numbers = calloc(count * GROUPS, sizeof *p.numbers);
	check(done && p.ranks && p.channels && p.numbers);
	for (int i = 0; i < o->stages; i++)
		rank_open(&p.ranks[i], o, i);
	while (through < o->stages) {
		bool moved = false;
		for (int i = 0; i < o->stages; i++) {
			if (done[i])
				continue;
			moved |= advance(&p, &p.ranks[i], &done[i]);
			through += done[i];
		}
		check(moved); /* else the lists wait in a circle, and so would the run */
	}
	settle(&p, stages, &end);
	for (int i = 0; i < o->stages; i++)
		rank_close(&p.ranks[i]);
	for (size_t i = 0; i < count * count; i++) {
		free(p.channels[i].begin[0]);
		free(p.channels[i].begin[1]);
	}
	free(p.channels);
	free(p.meetings);
	free(p.numbers);
	free(p.ranks);
	free(done);
	return end;
}

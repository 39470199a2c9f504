#include "plan/search_fit.h"
#include "plan/search_sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FULL = 12,   /* planned in full, at least */
       MOST = 48,   /* where more are sketched as faster than all that are planned */
       MICRO = 16 }; /* samples of a micro-batch, at most */
static const double tie = 0.01;

static void add(struct search *s, const struct search_layout *l)
{
	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 256;
		s->list = realloc(s->list, (size_t)s->room * sizeof *s->list);
		check(s->list);
	}
	s->list[s->count++] = *l;
}

struct walk {
	struct search *s;
	const struct plan_options *o;
};

/* The optimizer shared out over data ranks, and behind it whole. */
static void both_optimizers(struct search *s, struct search_layout l)
{
	l.sharded = l.data * l.context > 1;
	add(s, &l);
	if (!l.sharded)
		return;
	l.sharded = false;
	add(s, &l);
}

/* Schedules and chunks of a mesh and micro-batch. */
static void each_schedule(const struct walk *w, struct search_layout l)
{
	const struct model_settings *m = &w->o->config->model;
	both_optimizers(w->s, l);
	if (l.pipeline == 1)
		return;
	l.schedule = PIPELINE_ZERO_BUBBLE;
	both_optimizers(w->s, l);
	l.schedule = PIPELINE_INTERLEAVED;
	for (l.chunks = 2; l.chunks <= SEARCH_CHUNKS && l.chunks * l.pipeline <= m->layers; l.chunks++)
		both_optimizers(w->s, l);
}

static void layouts_of(void *to, const struct search_layout *mesh)
{
	const struct walk *w = to;
	struct search_layout l = *mesh;
	for (l.micro = 1; l.micro <= MICRO; l.micro++)
		if (w->o->config->batch.global % (l.data * l.micro) == 0)
			each_schedule(w, l);
}

static bool runs(const struct search_layout *l)
{
	return l->sketch > 0 && !l->beaten;
}

static int by_sketch(const void *a, const void *b)
{
	const struct search_layout *x = a, *y = b;
	if (runs(x) != runs(y))
		return runs(x) ? -1 : 1;
	return x->sketch < y->sketch ? -1 : x->sketch > y->sketch;
}

/* Layouts whose products alone take longer than the best sketch need no counting. */
static double least_seconds(const struct plan_options *o, const struct search_layout *l)
{
	const struct config *c = o->config;
	double devices = (double)(l->data * l->context * l->tensor * l->pipeline);
	double best = hardware_peak(o->hardware, c->precision.compute) * o->hardware->gemm_efficiency.value;
	double micros = (double)c->batch.global / (double)(l->data * l->micro);
	double idle = l->schedule == PIPELINE_ZERO_BUBBLE ? 0 : (double)(l->pipeline - 1) / micros / (double)l->chunks;
	return run_step_flops(c) / devices / best * (1 + idle);
}

/* With nothing computed again where that fits, else the cheapest set that does. */
static void sketch_recompute(struct search_layout *l, const struct plan_options *o)
{
	if (l->recompute == RECOMPUTE_NONE)
		search_sketch(l, o, true);
	if (l->recompute == RECOMPUTE_NONE && (!*l->reason || l->memory == 0))
		return;
	l->recompute = RECOMPUTE_AUTO;
	l->memory = 0;
	search_sketch(l, o, true);
}

/* A whole optimizer needs more memory than a sharded one, so it is tried where that fits, and stays in where it is faster. */
static void sketch_whole(struct search_layout *l, const struct search_layout *sharded, const struct plan_options *o)
{
	if (sharded->sketch == 0) {
		memcpy(l->reason, sharded->reason, sizeof l->reason);
		return;
	}
	l->recompute = sharded->recompute;
	sketch_recompute(l, o);
	if (l->sketch * (1 + tie) < sharded->sketch)
		return;
	if (*l->reason)
		return;
	snprintf(l->reason, sizeof l->reason, "no faster than with a sharded optimizer, and needs more memory");
	l->beaten = true;
}

static void sketch_all(struct search *s, const struct plan_options *o)
{
	double best = 0;
	for (int i = 0; i < s->count; i++) {
		struct search_layout *l = &s->list[i];
		double least = least_seconds(o, l);
		if (best > 0 && least > 1.15 * best) {
			snprintf(l->reason, sizeof l->reason, "at least %.0f%% slower by its FLOPs and bubble alone", 100 * (least / best - 1));
			continue;
		}
		if (i > 0 && !l->sharded && s->list[i - 1].sharded)
			sketch_whole(l, &s->list[i - 1], o);
		else
			sketch_recompute(l, o);
		if (l->sketch > 0 && (best == 0 || l->sketch < best))
			best = l->sketch;
	}
	qsort(s->list, (size_t)s->count, sizeof *s->list, by_sketch);
}

/* The fastest first; of those that are as fast within the tie, the one with most memory to spare. */
static void rank(struct search *s)
{
	for (int i = 0; i < s->ranked; i++) {
		int pick = i;
		double fastest = s->list[i].seconds;
		for (int k = i; k < s->ranked; k++)
			fastest = s->list[k].seconds < fastest ? s->list[k].seconds : fastest;
		for (int k = i; k < s->ranked; k++) {
			bool tied = s->list[k].seconds <= fastest * (1 + tie);
			bool was = s->list[pick].seconds <= fastest * (1 + tie);
			if (tied && (!was || s->list[k].memory < s->list[pick].memory))
				pick = k;
		}
		struct search_layout swap = s->list[i];
		s->list[i] = s->list[pick];
		s->list[pick] = swap;
	}
}

/* Out of the ranking: behind those that were planned and those that still may be. */
static void drop(struct search *s, int i)
{
	struct search_layout out = s->list[i];
	out.sketch = 0;
	memmove(&s->list[i], &s->list[i + 1], (size_t)(s->count - i - 1) * sizeof *s->list);
	s->list[s->count - 1] = out;
}

/* Whether the next in order of sketches is worth a plan: it is one of the first, or may be the fastest. */
static bool worth_planning(const struct search *s, double fastest)
{
	if (s->ranked == s->count || !runs(&s->list[s->ranked]))
		return false;
	return s->ranked < FULL || (s->ranked < MOST && s->list[s->ranked].sketch < fastest);
}

/* A sketch counts three stages; another one may hold more, and then the layout is out here. */
static bool plan_best(struct search *s, const struct plan_options *o, struct error *e)
{
	double fastest = INFINITY;
	while (worth_planning(s, fastest)) {
		struct search_layout *l = &s->list[s->ranked];
		struct plan p;
		struct error why = {0};
		search_apply(o->config, l);
		if (!plan_make(&p, o, &why)) {
			if (why.code != CODE_USAGE) {
				*e = why;
				return false;
			}
			search_refuse(l, &why);
			drop(s, s->ranked);
			continue;
		}
		l->seconds = p.step_seconds;
		l->mfu = p.mfu;
		l->memory = p.stage[p.fullest].total;
		bool fit = p.fits;
		if (!fit) {
			search_too_much(l, &p, p.fullest);
			l->seconds = l->mfu = 0;
			drop(s, s->ranked);
		} else {
			fastest = fmin(fastest, l->seconds);
		}
		s->ranked += fit;
		plan_finish(&p);
	}
	rank(s);
	return true;
}

/* What computes again all there is may fit where the cheapest set does not: then that layout is the one in the ranking. */
static bool plan_nearest(struct search *s, const struct plan_options *o, struct search_layout *nearest, struct error *e)
{
	*nearest = search_nearest(o);
	if (nearest->memory == 0 || *nearest->reason)
		return true;
	search_sketch(nearest, o, true);
	add(s, nearest);
	qsort(s->list, (size_t)s->count, sizeof *s->list, by_sketch);
	return plan_best(s, o, e);
}

/* What is in the ranking fits, whatever search_fit.h has tried. */
static void as_ranked(struct search *s, const struct plan_options *o)
{
	if (s->fewest == 0 || s->fewest > s->devices) {
		s->fewest = s->devices;
		s->fewest_layout = s->list[0];
	}
	if (s->longest < o->config->model.sequence) {
		s->longest = o->config->model.sequence;
		s->longest_layout = s->list[0];
	}
}

/* What is wrong with the config on one device is wrong in every layout. */
static bool check_alone(const struct plan_options *o, struct error *e)
{
	struct plan_options one = *o;
	struct plan p;
	int64_t global = o->config->batch.global;
	search_apply(o->config, &(struct search_layout){.data = 1, .context = 1, .tensor = 1, .pipeline = 1, .chunks = 1, .micro = 1});
	one.devices = one.config->batch.global = 1;
	bool good = plan_prepare(&p, &one, e);
	one.config->batch.global = global;
	if (good)
		plan_finish(&p);
	return good;
}

bool search_make(struct search *s, const struct plan_options *o, struct error *e)
{
	struct config *c = o->config;
	*s = (struct search){.devices = o->devices};
	if (!config_require(c, (const char *const[]){"model", NULL}, e))
		return false;
	if (c->batch.global == 0)
		return error_set(e, CODE_USAGE, "%s: batch.global is not set: the search needs it", c->path);
	if (c->batch.micro == 0 && !config_set(c, "batch.micro", "1", CODE_USAGE, e)) /* it is searched for */
		return false;
	if (!check_alone(o, e))
		return false;
	struct walk w = {s, o};
	search_each_mesh(o, o->devices, layouts_of, &w);
	char why[600];
	if (s->count == 0)
		return error_set(e, CODE_USAGE, "%s: no layout divides batch.global = %lld samples, %lld heads and %lld layers over %lld devices: %s",
				 c->path, (long long)c->batch.global, (long long)c->model.heads, (long long)c->model.layers, (long long)o->devices,
				 search_undivided(why, sizeof why, o));
	sketch_all(s, o);
	struct search_layout nearest = {0};
	if (!plan_best(s, o, e) || (s->ranked == 0 && !plan_nearest(s, o, &nearest, e)))
		return false;
	search_fewest(s, o);
	if (s->ranked == 0)
		return error_set(e, CODE_USAGE, "%s: no layout fits on %lld devices: the nearest %s%s; %s%lld", c->path, (long long)o->devices,
				 *nearest.reason ? "with full recompute " : "", *nearest.reason ? nearest.reason : s->list[0].reason,
				 s->fewest ? "the fewest on which one does are " : "nor on more, up to ",
				 (long long)(s->fewest ? s->fewest : 1 << 20));
	search_longest(s, o);
	as_ranked(s, o);
	return true;
}

void search_finish(struct search *s)
{
	free(s->list);
	*s = (struct search){0};
}

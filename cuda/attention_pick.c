#include "attention_pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_agree.h"
#include "base/log.h"

enum { SHAPES = 64, ALIGNED = 16 };

static const char ours[] = "own", refused[] = "refused attention";

struct shape {
	struct attention_key key;
	struct op_attention_backward latest; /* what trying runs on; no qkv: there was no call yet */
	void *plan;                          /* the other's; NULL: not made, or given up */
	char text[TUNING_VALUE];             /* of the plan; where it cannot be made, why */
	bool other;                          /* it computes this shape */
	bool fixed;                          /* told, or tried already */
	char refused[TUNING_VALUE];          /* it disagrees, or a rank cannot have it: its name, and how; else "" */
};

struct attention_pick {
	struct attention_other other; /* no forward: there is none */
	size_t workspace;
	struct shape shapes[SHAPES];
	int count;
	bool settled;
	struct tuning told;
};

struct attention_pick *attention_pick_open(const struct attention_other *other)
{
	struct attention_pick *p = calloc(1, sizeof *p);
	check(p);
	if (other)
		p->other = *other;
	return p;
}

void attention_pick_close(struct attention_pick *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->count; i++)
		if (p->shapes[i].plan)
			p->other.plan_close(p->shapes[i].plan);
	if (p->other.close)
		p->other.close(p->other.self);
	tuning_finish(&p->told);
	free(p);
}

size_t attention_pick_workspace(const struct attention_pick *p, const struct dev_limits *limits)
{
	return p->other.workspace ? p->other.workspace(limits) : 0;
}

void attention_pick_reserved(struct attention_pick *p, size_t workspace)
{
	p->workspace = workspace;
}

/* "attention fp16 4x2048 heads 40x1 of 128 scale 0.0883883": samples × tokens, KV groups × heads of one. */
static void name_shape(char out[TUNING_KEY], const char *what, const struct attention_key *k)
{
	int n = snprintf(out, TUNING_KEY, "%s %s %lldx%lld heads %lldx%lld of %lld scale %.9g", what, dtype_name((enum dtype)k->type),
			 (long long)k->batch, (long long)k->tokens, (long long)k->groups, (long long)k->heads, (long long)k->size, k->scale);
	check(n < TUNING_KEY);
}

static const char *told(const struct attention_pick *p, const struct shape *s, const char *what)
{
	char name[TUNING_KEY];
	name_shape(name, what, &s->key);
	return tuning_find(&p->told, name);
}

static bool have_plan(struct attention_pick *p, struct shape *s)
{
	if (!s->plan && p->other.forward && attention_agree_room(&s->key) <= p->workspace)
		s->plan = p->other.plan_open(p->other.self, &s->key, p->workspace, s->text);
	return s->plan != NULL;
}

static void settle_on(struct attention_pick *p, struct shape *s, bool other)
{
	s->other = other;
	s->fixed = true;
	if (!other && s->plan) {
		p->other.plan_close(s->plan);
		s->plan = NULL;
	}
}

/* A refusal holds against the other of that name alone. */
static bool concerns(const struct attention_pick *p, const char *refusal)
{
	return p->other.forward && strncmp(refusal, p->other.name, strlen(p->other.name)) == 0;
}

/* What ranks have agreed on after all had chosen, and this one cannot: others hear of it, beginning with the agreed one's name. */
static void refuse(struct attention_pick *p, struct shape *s, const char *agreed)
{
	const char *why = !p->other.forward ? "there is no such library" : s->text[0] ? s->text : "too little workspace";
	snprintf(s->refused, sizeof s->refused, "%.80s: rank %d has %s%.60s", agreed, log_rank(), s->plan ? "" : "no plan: ", why);
	settle_on(p, s, false);
}

static void obey(struct attention_pick *p, struct shape *s)
{
	const char *value = told(p, s, "attention"), *refusal = told(p, s, refused);
	if (refusal && concerns(p, refusal)) {
		snprintf(s->refused, sizeof s->refused, "%s", refusal);
		settle_on(p, s, false);
	} else if (value && strcmp(value, ours) == 0) {
		settle_on(p, s, false);
	} else if (value && have_plan(p, s) && strcmp(value, s->text) == 0) {
		settle_on(p, s, true);
	} else if (value && s->fixed) {
		refuse(p, s, value);
	}
}

static bool aligned(struct tensor t, struct tensor u)
{
	return ((uintptr_t)t.data | (uintptr_t)u.data) % ALIGNED == 0;
}

/* The shape of a call that the other could compute; NULL: the call is ours. */
static struct shape *shape_of(struct attention_pick *p, struct tensor qkv, struct tensor slopes, int64_t sequence, double scale,
			      const struct dropout *d)
{
	struct attention_key key;
	if ((qkv.dtype != F16 && qkv.dtype != BF16) || d->rate > 0 || tensor_given(slopes))
		return NULL;
	memset(&key, 0, sizeof key);
	key.batch = qkv.shape[0] / sequence;
	key.tokens = sequence;
	key.groups = qkv.shape[1];
	key.heads = qkv.shape[2] - 2;
	key.size = qkv.shape[3];
	key.scale = scale;
	key.type = (int64_t)qkv.dtype;
	for (int i = 0; i < p->count; i++)
		if (memcmp(&p->shapes[i].key, &key, sizeof key) == 0)
			return &p->shapes[i];
	if (p->settled || p->count == SHAPES)
		return NULL;
	struct shape *s = &p->shapes[p->count++];
	s->key = key;
	obey(p, s);
	return s;
}

void attention_pick_forward(struct attention_pick *p, const struct kernel_place *k, const struct op_attention_forward *a)
{
	struct shape *s = shape_of(p, a->qkv, a->slopes, a->sequence, a->scale, &a->dropout);
	if (!s || !s->other || !aligned(a->qkv, a->out))
		kernel_attention_forward(k, a);
	else if (!p->other.forward(s->plan, k, a))
		die(CODE_MACHINE, "attention forward by %s failed", s->text);
}

void attention_pick_backward(struct attention_pick *p, const struct kernel_place *k, const struct op_attention_backward *a)
{
	struct shape *s = shape_of(p, a->qkv, a->slopes, a->sequence, a->scale, &a->dropout);
	bool usable = s && aligned(a->qkv, a->out) && aligned(a->dqkv, a->dout);
	if (usable)
		s->latest = *a;
	if (!usable || !s->other)
		kernel_attention_backward(k, a);
	else if (!p->other.backward(s->plan, k, a))
		die(CODE_MACHINE, "attention backward by %s failed", s->text);
}

static bool better(struct attention_pick *p, struct shape *s, const struct kernel_place *k, bool timed)
{
	char why[ATTENTION_WHY];
	if (!tensor_given(s->latest.qkv) || !have_plan(p, s))
		return false;
	if (!attention_agree(&p->other, s->plan, k, &s->latest, why)) {
		snprintf(s->refused, sizeof s->refused, "%.87s: %.80s", p->other.name, why);
		return false;
	}
	return !timed || attention_agree_time(&p->other, s->plan, k, &s->latest) < attention_agree_time(NULL, NULL, k, &s->latest);
}

void attention_pick_choose(struct attention_pick *p, const struct kernel_place *k, struct tuning *own, bool timed)
{
	char name[TUNING_KEY];
	for (int i = 0; i < p->count; i++) {
		struct shape *s = &p->shapes[i];
		if (!s->fixed)
			settle_on(p, s, better(p, s, k, timed));
		name_shape(name, "attention", &s->key);
		tuning_set(own, name, s->other ? s->text : ours);
		name_shape(name, refused, &s->key);
		if (s->refused[0])
			tuning_set(own, name, s->refused);
	}
}

void attention_pick_told(struct attention_pick *p, const struct tuning *t)
{
	for (int i = 0; i < t->count; i++) {
		const struct tuning_choice *c = &t->list[i];
		bool refusal = strncmp(c->key, refused, strlen(refused)) == 0 && (!p->other.forward || concerns(p, c->value));
		if (refusal && log_rank() == 0 && !tuning_find(&p->told, c->key))
			log_warn("%s is computed by our kernels on all ranks, not by another library: %s", c->key + strlen("refused "), c->value);
		tuning_set(&p->told, c->key, c->value);
	}
	for (int i = 0; i < p->count; i++)
		obey(p, &p->shapes[i]);
}

void attention_pick_settle(struct attention_pick *p, bool settled)
{
	p->settled = settled;
}

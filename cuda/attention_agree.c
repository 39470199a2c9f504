#include "attention_agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "card.h"
#include "stopwatch.h"

enum { PLACES = 4, PATTERN = (1 << 18) + 3, ALIGN = 256, HALF = 2 };

/* The part of a call that is looked at: some KV groups, and for each the elements of out [T, G, D], lse [G, T] and
 * dqkv [T, G + 2, D]. */
struct sight {
	int64_t tokens, groups, heads, size, places, all; /* all: KV groups of all samples */
	int64_t out, lse, dqkv;
};

static struct sight sight_of(int64_t batch, int64_t tokens, int64_t groups, int64_t heads, int64_t size)
{
	int64_t all = batch * groups;
	return (struct sight){.tokens = tokens, .groups = groups, .heads = heads, .size = size, .all = all,
			      .places = all < PLACES ? all : PLACES, .out = tokens * heads * size, .lse = heads * tokens,
			      .dqkv = tokens * (heads + 2) * size};
}

static struct sight sight_of_call(const struct op_attention_backward *a)
{
	return sight_of(a->qkv.shape[0] / a->sequence, a->sequence, a->qkv.shape[1], a->qkv.shape[2] - 2, a->qkv.shape[3]);
}

/* The group of all that place p is. */
static int64_t group_at(const struct sight *s, int64_t p)
{
	return s->places > 1 ? p * (s->all - 1) / (s->places - 1) : 0;
}

static size_t round_up(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t attention_agree_room(const struct attention_key *key)
{
	struct sight s = sight_of(key->batch, key->tokens, key->groups, key->heads, key->size);
	size_t out = round_up((size_t)s.out * sizeof(float)), dqkv = round_up((size_t)s.dqkv * sizeof(float));
	return 3 * out + 3 * dqkv + 2 * round_up((size_t)s.lse * sizeof(float));
}

/* Rows of one group of a tensor [B·T, KV, …], each `width` elements, to rows without gaps or to the host. */
static void copy_rows(void *to, struct tensor from, const struct sight *s, int64_t group, int64_t width, enum cudaMemcpyKind kind,
		      cudaStream_t stream)
{
	int64_t sample = group / s->groups, first = (sample * s->tokens * s->groups + group % s->groups) * width;
	CALL(cudaMemcpy2DAsync(to, (size_t)width * HALF, (char *)from.data + first * HALF, (size_t)(s->groups * width) * HALF,
			       (size_t)width * HALF, (size_t)s->tokens, kind, stream));
}

/* About N(0, 1), from a hash; the pattern is repeated out of step with rows. */
static void fill(struct tensor t, uint64_t seed, cudaStream_t stream)
{
	uint16_t *pattern = malloc(PATTERN * sizeof *pattern);
	check(pattern);
	for (uint64_t i = 0; i < PATTERN; i++) {
		uint64_t x = (i + seed * PATTERN) * 0x9e3779b97f4a7c15u;
		x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
		x ^= x >> 29;
		float sum = 0;
		for (int part = 0; part < 4; part++)
			sum += (float)(x >> 16 * part & 0xffff) / 65536 - 0.5f;
		pattern[i] = t.dtype == F16 ? fp16_from_float(sum * sqrtf(3)) : bf16_from_float(sum * sqrtf(3));
	}
	for (size_t at = 0, bytes = tensor_bytes(t), most = PATTERN * sizeof *pattern; at < bytes; at += most)
		CALL(cudaMemcpyAsync((char *)t.data + at, pattern, bytes - at < most ? bytes - at : most, cudaMemcpyHostToDevice, stream));
	free(pattern);
}

static bool run(const struct attention_other *o, void *plan, const struct kernel_place *k, const struct op_attention_backward *a)
{
	struct op_attention_forward f = {.out = a->out, .lse = a->lse, .qkv = a->qkv, .sequence = a->sequence, .scale = a->scale,
					 .dropout = a->dropout, .first_head = a->first_head};
	if (o)
		return o->forward(plan, k, &f) && o->backward(plan, k, a);
	kernel_attention_forward(k, &f);
	kernel_attention_backward(k, a);
	return true;
}

/* What one way has written at all places. */
struct results {
	uint16_t *out, *dqkv;
	float *lse;
	bool good; /* it has computed */
};

static void give_back(struct results *r)
{
	free(r->out);
	free(r->dqkv);
	free(r->lse);
}

static struct results compute(const struct attention_other *o, void *plan, const struct kernel_place *k,
			      const struct op_attention_backward *a, const struct sight *s)
{
	struct results r = {.out = malloc((size_t)(s->places * s->out) * HALF), .dqkv = malloc((size_t)(s->places * s->dqkv) * HALF),
			    .lse = malloc((size_t)(s->places * s->lse) * sizeof(float))};
	check(r.out && r.dqkv && r.lse);
	/* What is not written stays NaN. */
	CALL(cudaMemsetAsync(a->out.data, 0xff, tensor_bytes(a->out), k->stream));
	CALL(cudaMemsetAsync(a->lse.data, 0xff, tensor_bytes(a->lse), k->stream));
	CALL(cudaMemsetAsync(a->dqkv.data, 0xff, tensor_bytes(a->dqkv), k->stream));
	r.good = run(o, plan, k, a);
	for (int64_t p = 0; p < s->places; p++) {
		int64_t group = group_at(s, p);
		copy_rows(r.out + p * s->out, a->out, s, group, s->heads * s->size, cudaMemcpyDeviceToHost, k->stream);
		copy_rows(r.dqkv + p * s->dqkv, a->dqkv, s, group, (s->heads + 2) * s->size, cudaMemcpyDeviceToHost, k->stream);
		CALL(cudaMemcpyAsync(r.lse + p * s->lse, (float *)a->lse.data + group * s->lse, (size_t)s->lse * sizeof(float),
				     cudaMemcpyDeviceToHost, k->stream));
	}
	CALL(cudaStreamSynchronize(k->stream));
	return r;
}

/* One group in FP32, in the workspace: [out][dqkv][lse] on the host. */
static void compute_exact(float *out, float *dqkv, float *lse, const struct kernel_place *k, const struct op_attention_backward *a,
			  const struct sight *s, int64_t group)
{
	const int64_t in[] = {s->tokens, 1, s->heads + 2, s->size}, to[] = {s->tokens, s->heads, s->size}, row[] = {1, s->heads, s->tokens};
	size_t room_out = round_up((size_t)s->out * sizeof(float)), room_in = round_up((size_t)s->dqkv * sizeof(float));
	size_t room_row = round_up((size_t)s->lse * sizeof(float));
	char *at = k->workspace;
	struct op_attention_backward b = {.sequence = s->tokens, .scale = a->scale, .dropout = a->dropout};
	b.qkv = tensor_of(at, F32, 4, in);
	b.dqkv = tensor_of(at + room_in, F32, 4, in);
	struct tensor qkv = tensor_of(at + 2 * room_in, a->qkv.dtype, 4, in);
	at += 3 * room_in;
	b.out = tensor_of(at, F32, 3, to);
	b.dout = tensor_of(at + room_out, F32, 3, to);
	struct tensor dout = tensor_of(at + 2 * room_out, a->dout.dtype, 3, to);
	at += 3 * room_out;
	b.lse = tensor_of(at, F32, 3, row);
	b.delta = tensor_of(at + room_row, F32, 3, row);
	copy_rows(qkv.data, a->qkv, s, group, (s->heads + 2) * s->size, cudaMemcpyDeviceToDevice, k->stream);
	copy_rows(dout.data, a->dout, s, group, s->heads * s->size, cudaMemcpyDeviceToDevice, k->stream);
	kernel_convert(k, &(struct op_convert){.to = b.qkv, .from = qkv});
	kernel_convert(k, &(struct op_convert){.to = b.dout, .from = dout});
	run(NULL, NULL, k, &b);
	CALL(cudaMemcpyAsync(out, b.out.data, (size_t)s->out * sizeof *out, cudaMemcpyDeviceToHost, k->stream));
	CALL(cudaMemcpyAsync(dqkv, b.dqkv.data, (size_t)s->dqkv * sizeof *dqkv, cudaMemcpyDeviceToHost, k->stream));
	CALL(cudaMemcpyAsync(lse, b.lse.data, (size_t)s->lse * sizeof *lse, cudaMemcpyDeviceToHost, k->stream));
	CALL(cudaStreamSynchronize(k->stream));
}

/* The largest distances of one tensor. */
struct distance {
	const char *name;
	double ours, other, scale;
};

static double farther(double most, double x, double r)
{
	double d = fabs(x - r);
	return isnan(d) ? (double)INFINITY : d > most ? d : most;
}

static void look(struct distance *d, double ours, double other, double r)
{
	d->ours = farther(d->ours, ours, r);
	d->other = farther(d->other, other, r);
	d->scale = farther(d->scale, r, 0);
}

static double wide(enum dtype type, uint16_t x)
{
	return (double)(type == F16 ? float_from_fp16(x) : float_from_bf16(x));
}

static bool near(const struct results *ours, const struct results *other, const struct kernel_place *k,
		 const struct op_attention_backward *a, const struct sight *s, char why[ATTENTION_WHY])
{
	struct distance all[] = {{.name = "out"}, {.name = "lse"}, {.name = "dqkv"}};
	float *out = malloc((size_t)s->out * sizeof *out), *dqkv = malloc((size_t)s->dqkv * sizeof *dqkv);
	float *lse = malloc((size_t)s->lse * sizeof *lse);
	enum dtype type = a->qkv.dtype;
	check(out && dqkv && lse);
	for (int64_t p = 0; p < s->places; p++) {
		compute_exact(out, dqkv, lse, k, a, s, group_at(s, p));
		for (int64_t i = 0; i < s->out; i++)
			look(&all[0], wide(type, ours->out[p * s->out + i]), wide(type, other->out[p * s->out + i]), (double)out[i]);
		for (int64_t i = 0; i < s->lse; i++)
			look(&all[1], (double)ours->lse[p * s->lse + i], (double)other->lse[p * s->lse + i], (double)lse[i]);
		for (int64_t i = 0; i < s->dqkv; i++)
			look(&all[2], wide(type, ours->dqkv[p * s->dqkv + i]), wide(type, other->dqkv[p * s->dqkv + i]), (double)dqkv[i]);
	}
	free(out);
	free(dqkv);
	free(lse);
	for (int i = 0; i < 3; i++) {
		double bound = 2 * all[i].ours + 1e-6 * all[i].scale;
		if (!(all[i].other <= bound) || isinf(bound)) {
			snprintf(why, ATTENTION_WHY, "%s is off by %.3g, %.3g is the bound", all[i].name, all[i].other, bound);
			return false;
		}
	}
	return true;
}

bool attention_agree(const struct attention_other *o, void *plan, const struct kernel_place *k, const struct op_attention_backward *a,
		     char why[ATTENTION_WHY])
{
	struct sight s = sight_of_call(a);
	fill(a->qkv, 1, k->stream);
	fill(a->dout, 2, k->stream);
	struct results ours = compute(NULL, NULL, k, a, &s), other = compute(o, plan, k, a, &s), again = compute(o, plan, k, a, &s);
	bool good = other.good && again.good && memcmp(other.out, again.out, (size_t)(s.places * s.out) * HALF) == 0 &&
		    memcmp(other.lse, again.lse, (size_t)(s.places * s.lse) * sizeof(float)) == 0 &&
		    memcmp(other.dqkv, again.dqkv, (size_t)(s.places * s.dqkv) * HALF) == 0;
	if (!other.good || !again.good)
		snprintf(why, ATTENTION_WHY, "a call fails");
	else if (!good)
		snprintf(why, ATTENTION_WHY, "a second run gives other bits");
	else
		good = near(&ours, &other, k, a, &s, why);
	give_back(&ours);
	give_back(&other);
	give_back(&again);
	return good;
}

/* A way to be timed. */
struct trial {
	const struct attention_other *other;
	void *plan;
	const struct kernel_place *place;
	const struct op_attention_backward *call;
};

static bool run_once(const void *context)
{
	const struct trial *t = context;
	return run(t->other, t->plan, t->place, t->call);
}

float attention_agree_time(const struct attention_other *o, void *plan, const struct kernel_place *k,
			   const struct op_attention_backward *a)
{
	struct trial t = {o, plan, k, a};
	float ms = stopwatch(k->stream, run_once, &t);
	return ms < 0 ? INFINITY : ms;
}

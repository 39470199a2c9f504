#include "model/param.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/rng.h"

/* The next free entry, named. */
static struct param *entry(struct param_table *t, int64_t layer, const char *name)
{
	struct param *p = &t->params[t->count++];
	*p = (struct param){.layer = layer, .split = PARAM_WHOLE, .shape = {1, 1, 1, 1}};
	int n = layer >= 0 ? snprintf(p->name, sizeof p->name, "layers.%lld.%s", (long long)layer, name)
			   : snprintf(p->name, sizeof p->name, "%s", name);
	check(n < (int)sizeof p->name);
	return p;
}

static void matrix(struct param_table *t, int64_t layer, const char *name, int split, double std, int dims,
		   const int64_t *shape)
{
	struct param *p = entry(t, layer, name);
	p->split = split;
	p->std = std;
	p->decay = true;
	p->dims = dims;
	memcpy(p->shape, shape, (size_t)dims * sizeof *shape);
}

static void vector(struct param_table *t, int64_t layer, const char *name, int split, double fill, int dims,
		   const int64_t *shape)
{
	struct param *p = entry(t, layer, name);
	p->split = split;
	p->fill = fill;
	p->dims = dims;
	memcpy(p->shape, shape, (size_t)dims * sizeof *shape);
}

static void norm(struct param_table *t, const struct model_settings *m, int64_t layer, const char *name)
{
	char full[PARAM_NAME];
	snprintf(full, sizeof full, "%s.weight", name);
	vector(t, layer, full, PARAM_WHOLE, 1.0, 1, &m->hidden);
	if (m->norm == NORM_LAYER && m->bias) {
		snprintf(full, sizeof full, "%s.bias", name);
		vector(t, layer, full, PARAM_WHOLE, 0.0, 1, &m->hidden);
	}
}

static void block(struct param_table *t, const struct model_settings *m, int64_t layer)
{
	int64_t C = m->hidden, F = m->ffn, D = m->head_size, KV = m->kv_heads, G = m->heads / m->kv_heads;
	double deep = m->init_std / sqrt(2.0 * (double)m->layers);

	norm(t, m, layer, "norm1");
	matrix(t, layer, "attention.qkv.weight", 0, m->init_std, 4, (int64_t[]){KV, G + 2, D, C});
	if (m->qkv_bias)
		vector(t, layer, "attention.qkv.bias", 0, 0.0, 3, (int64_t[]){KV, G + 2, D});
	matrix(t, layer, "attention.out.weight", 1, deep, 3, (int64_t[]){C, m->heads, D});
	if (m->bias)
		vector(t, layer, "attention.out.bias", PARAM_WHOLE, 0.0, 1, &C);
	norm(t, m, layer, "norm2");
	if (m->activation == ACTIVATION_SWIGLU) {
		matrix(t, layer, "mlp.gate_up.weight", 1, m->init_std, 3, (int64_t[]){2, F, C});
		if (m->bias)
			vector(t, layer, "mlp.gate_up.bias", 1, 0.0, 2, (int64_t[]){2, F});
	} else {
		matrix(t, layer, "mlp.up.weight", 0, m->init_std, 2, (int64_t[]){F, C});
		if (m->bias)
			vector(t, layer, "mlp.up.bias", 0, 0.0, 1, &F);
	}
	matrix(t, layer, "mlp.down.weight", 1, deep, 2, (int64_t[]){C, F});
	if (m->bias)
		vector(t, layer, "mlp.down.bias", PARAM_WHOLE, 0.0, 1, &C);
}

void param_table_init(struct param_table *t, const struct model_settings *m, enum dtype dtype, int tensor,
		      int tensor_rank)
{
	enum { EACH_LAYER = 12, OUTSIDE = 5, ENDS = 2 };
	*t = (struct param_table){.tensor = tensor, .tensor_rank = tensor_rank, .dtype = dtype, .slices = 1};
	t->params = calloc((size_t)(m->layers * EACH_LAYER + OUTSIDE), sizeof *t->params);
	t->buckets = calloc((size_t)(m->layers + ENDS), sizeof *t->buckets);
	check(t->params && t->buckets);
	matrix(t, -1, "embedding.token.weight", 0, m->init_std, 2, (int64_t[]){m->vocab, m->hidden});
	if (m->position == POSITION_LEARNED)
		matrix(t, -1, "embedding.position.weight", PARAM_WHOLE, m->init_std, 2, (int64_t[]){m->sequence, m->hidden});
	for (int64_t i = 0; i < m->layers; i++)
		block(t, m, i);
	int behind = t->count;
	norm(t, m, -1, "norm");
	if (!m->tied)
		matrix(t, -1, "head.weight", 0, m->init_std, 2, (int64_t[]){m->vocab, m->hidden});
	for (int i = behind; i < t->count; i++)
		t->params[i].layer = m->layers;
}

void param_table_finish(struct param_table *t)
{
	free(t->params);
	free(t->buckets);
	*t = (struct param_table){0};
}

const struct param *param_find(const struct param_table *t, const char *name)
{
	for (int i = 0; i < t->count; i++)
		if (strcmp(t->params[i].name, name) == 0)
			return &t->params[i];
	return NULL;
}

int64_t param_total(const struct param_table *t)
{
	int64_t total = 0;
	for (int i = 0; i < t->count; i++) {
		struct box whole = box_whole(t->params[i].dims, t->params[i].shape);
		total += box_count(&whole);
	}
	return total;
}

struct initial {
	const struct param *p;
	uint64_t seed;
	uint32_t stream;
	int64_t begin, end; /* of the box's elements */
	float *out;
};

/* One run that is contiguous both in the global tensor and here: the part of it that is asked for. */
static void initial_run(void *context, int64_t global, int64_t local, int64_t count)
{
	struct initial *a = context;
	int64_t from = local > a->begin ? local : a->begin;
	int64_t to = local + count < a->end ? local + count : a->end;
	double four[4];
	int64_t have = -1;
	for (int64_t i = from; i < to; i++) {
		int64_t element = global + (i - local);
		if (element / 4 != have) {
			have = element / 4;
			rng_normal(a->seed, a->stream, (uint64_t)have, four);
		}
		a->out[i - a->begin] = (float)(a->p->std * four[element % 4]);
	}
}

void param_initial(const struct param *p, uint64_t seed, int64_t begin, int64_t count, float *out)
{
	if (p->std == 0.0) {
		for (int64_t i = 0; i < count; i++)
			out[i] = (float)p->fill;
		return;
	}
	struct initial a = {p, seed, XXH32(p->name, strlen(p->name), 0), begin, begin + count, out};
	box_runs(&p->box, p->shape, initial_run, &a);
}

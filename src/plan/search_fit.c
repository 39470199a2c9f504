#include "plan/search_fit.h"

#include <stdio.h>

#include "plan/search_sketch.h"

enum { CONTEXT_LEAST = 4096,    /* tokens of a sequence on a rank, where it is shared out */
       SEQUENCE_MOST = 1 << 24, /* what the setting allows */
       DEVICES_MOST = 1 << 20,
       CONTEXTS = 13 };         /* powers of two, up to SEQUENCE_MOST / CONTEXT_LEAST */

void search_each_mesh(const struct plan_options *o, int64_t devices, void (*f)(void *to, const struct search_layout *mesh), void *to)
{
	const struct model_settings *m = &o->config->model;
	int64_t node = (int64_t)o->hardware->devices_per_node.value;
	struct search_layout l = {.chunks = 1, .schedule = PIPELINE_1F1B};
	for (l.tensor = 1; l.tensor <= node && l.tensor <= devices; l.tensor++) {
		if (devices % l.tensor != 0 || m->heads % l.tensor != 0 || m->kv_heads % l.tensor != 0 || m->ffn % l.tensor != 0)
			continue;
		for (l.context = 1; l.context == 1 || (l.context <= devices && m->sequence / l.context >= CONTEXT_LEAST); l.context *= 2)
			for (l.pipeline = 1; l.pipeline <= m->layers; l.pipeline++) {
				int64_t model = l.tensor * l.context * l.pipeline;
				l.data = devices / model;
				if (devices % model == 0 && o->config->batch.global % l.data == 0)
					f(to, &l);
			}
	}
}

static void least_data(void *to, const struct search_layout *mesh)
{
	int64_t *least = to;
	*least = *least == 0 || mesh->data < *least ? mesh->data : *least;
}

char *search_undivided(char *buf, size_t room, const struct plan_options *o)
{
	struct config *c = o->config;
	const struct model_settings *m = &c->model;
	const struct {
		const char *name;
		int64_t value;
	} split[] = {{"model.heads", m->heads}, {"model.kv_heads", m->kv_heads}, {"model.ffn", m->ffn}};
	int64_t node = (int64_t)o->hardware->devices_per_node.value, global = c->batch.global, data = 0;
	FILE *text = fmemopen(buf, room, "w");
	check(text);
	for (size_t i = 0; i < sizeof split / sizeof *split; i++)
		for (int64_t t = 1; t <= node && t <= o->devices; t++)
			if (o->devices % t == 0 && split[i].value % t != 0 && (i != 1 || m->kv_heads != m->heads)) {
				fprintf(text, "%s = %lld is not divisible by tensor = %lld; ", split[i].name, (long long)split[i].value, (long long)t);
				break;
			}
	for (int64_t p = m->layers + 1; p <= o->devices; p++)
		if (o->devices % p == 0) {
			fprintf(text, "model.layers = %lld are fewer than pipeline = %lld; ", (long long)m->layers, (long long)p);
			break;
		}
	c->batch.global = 0; /* which all data ranks divide */
	search_each_mesh(o, o->devices, least_data, &data);
	c->batch.global = global;
	fprintf(text, "batch.global = %lld is not divisible by data = %lld, the least that tensor * context * pipeline leave", (long long)global,
		(long long)data);
	fclose(text);
	return buf;
}

/* Of as many context ranks, more tensor ranks need less memory in every part, so only the most are tried. */
struct fit {
	struct search_layout best; /* that fits, or that needs least; reason empty and memory 0: none could be counted */
	int64_t widest[CONTEXTS]; /* tensor ranks, by the logarithm of the context ranks */
	const struct plan_options *o;
	bool fits;
};

static int64_t *widest(struct fit *f, const struct search_layout *mesh)
{
	int i = 0;
	while ((int64_t)1 << i < mesh->context)
		i++;
	check(i < CONTEXTS);
	return &f->widest[i];
}

/* Bytes that it needs; 0: it could not be counted. */
static int64_t try_layout(struct fit *f, struct search_layout l)
{
	search_sketch(&l, f->o, false);
	if (l.memory == 0)
		return 0;
	f->fits = !*l.reason;
	if (f->fits || f->best.memory == 0 || l.memory < f->best.memory)
		f->best = l;
	return l.memory;
}

static void try_fit(void *to, const struct search_layout *mesh)
{
	static const double near = 1.1; /* more than chunks can save */
	struct fit *f = to;
	const struct model_settings *m = &f->o->config->model;
	struct search_layout l = *mesh;
	l.micro = 1;
	l.recompute = RECOMPUTE_FULL;
	l.sharded = l.data * l.context > 1;
	if (f->fits || l.tensor != *widest(f, mesh))
		return;
	int64_t needs = try_layout(f, l);
	if (f->fits || l.pipeline == 1 || needs == 0 || (double)needs > near * f->o->hardware->memory_gib.value * 0x1p30)
		return;
	/* Chunks may share out better what the first and the last stage have beside their layers. */
	l.schedule = PIPELINE_INTERLEAVED;
	for (l.chunks = 2; l.chunks <= SEARCH_CHUNKS && l.chunks * l.pipeline <= m->layers && !f->fits; l.chunks++)
		if (m->layers % (l.chunks * l.pipeline) == 0)
			try_layout(f, l);
}

static void widen(void *to, const struct search_layout *mesh)
{
	int64_t *most = widest(to, mesh);
	*most = mesh->tensor > *most ? mesh->tensor : *most;
}

static struct fit try_all(const struct plan_options *o, int64_t devices)
{
	struct plan_options here = *o;
	here.devices = devices;
	struct fit f = {.o = &here};
	search_each_mesh(o, devices, widen, &f);
	search_each_mesh(o, devices, try_fit, &f);
	f.o = NULL;
	return f;
}

static bool fits(const struct plan_options *o, int64_t devices, struct search_layout *l)
{
	struct fit f = try_all(o, devices);
	if (f.fits)
		*l = f.best;
	return f.fits;
}

struct search_layout search_nearest(const struct plan_options *o)
{
	return try_all(o, o->devices).best;
}

static int64_t next_count(int64_t n, int64_t node)
{
	return n < node ? n + 1 : n < 64 * node ? n / node * node + node : n * 5 / 4 / node * node;
}

void search_fewest(struct search *s, const struct plan_options *o)
{
	int64_t node = (int64_t)o->hardware->devices_per_node.value, n = 1, before = 0;
	while (n <= DEVICES_MOST && !fits(o, n, &s->fewest_layout)) {
		before = n;
		n = next_count(n, node);
	}
	if (n > DEVICES_MOST)
		return;
	int64_t skipped = n - before, step = (skipped / 32 / node + 1) * node, least = n;
	if (n > node && skipped > node)
		for (least = before + step; least < n && !fits(o, least, &s->fewest_layout); least += step)
			;
	s->fewest = least < n ? least : n;
}

void search_longest(struct search *s, const struct plan_options *o)
{
	struct config *c = o->config;
	int64_t before = c->model.sequence, unit = before < 1024 ? before : 1024, low = 0, high = unit;
	while (high <= SEQUENCE_MOST) {
		c->model.sequence = high;
		if (!fits(o, o->devices, &s->longest_layout))
			break;
		low = high;
		high *= 2;
	}
	for (int64_t step = (high - low) / 2; step >= unit; step /= 2) {
		c->model.sequence = low + step;
		if (c->model.sequence <= SEQUENCE_MOST && fits(o, o->devices, &s->longest_layout))
			low += step;
	}
	c->model.sequence = before;
	s->longest = low;
}

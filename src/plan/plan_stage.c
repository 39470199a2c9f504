#include "plan/plan.h"

#include <stdlib.h>

#include "dev/cpu/cpu.h"

static const double gibi = 0x1p30;

static int groups_of(const struct ledger *l)
{
	int count = 0;
	for (int i = 0; i < l->groups; i++)
		count += l->group[i].ranks > 1;
	return count;
}

static int64_t overhead(const struct plan_options *o, const struct ledger *l)
{
	const struct hardware *h = o->hardware;
	if (h->cpu)
		return 0;
	return (int64_t)((h->context_gib.value + h->library_gib.value + h->group_gib.value * groups_of(l) + o->stack->overhead_gib) * gibi);
}

/* What the ops of the CPU backend use inside. */
static bool cpu_workspace(const struct plan_options *o, const struct counted *c, size_t *bytes, struct error *e)
{
	struct device *dev;
	struct dev_limits limits = c->dev->limits;
	if (!dev_open(&dev, &backend_cpu, &(struct dev_options){.threads = (int)o->config->device.threads}, e))
		return false;
	bool good = dev_reserve(dev, &limits, e);
	*bytes = dev_workspace(dev);
	dev_close(dev);
	return good;
}

bool plan_count_stage(struct plan *p, const struct plan_options *o, int stage, struct record *record, struct error *e)
{
	struct counted *c = calloc(1, sizeof *c);
	struct plan_stage *s = &p->stage[stage];
	struct mesh mesh = p->mesh;
	size_t workspace = 0;

	check(c);
	mesh.at[AXIS_PIPELINE] = stage;
	mesh.rank = mesh_rank_of(&mesh, mesh.at);
	if (!counted_open(c, o->config, &mesh, 0, e)) {
		free(c);
		return false;
	}
	const struct record *step = counted_step(c);
	ledger_make(&s->ledger, c, step);
	*record = cost_take_record(c->dev);
	bool good = !o->hardware->cpu || cpu_workspace(o, c, &workspace, e);
	s->ledger.workspace = (int64_t)workspace;
	s->layers = c->run.gpt.layers;
	s->overhead = overhead(o, &s->ledger);
	s->total = s->overhead + s->ledger.workspace;
	for (int k = 0; k < MEMORY_KINDS; k++)
		s->total += s->ledger.arena[k];
	if (o->stack->fp16_gradients)
		s->total -= s->ledger.arena[MEMORY_GRADIENTS] / 2;
	p->parameters = param_total(&c->run.params);
	counted_close(c);
	free(c);
	return good;
}

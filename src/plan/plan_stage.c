#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

#include "dev/cpu/cpu.h"
#include "dev/workspace.h"

static const double gibi = 0x1p30;

int plan_groups(const struct mesh *m, bool ends)
{
	const int *size = m->size;
	return (mesh_world(m) > 1) + (size[AXIS_TENSOR] > 1) + (size[AXIS_CONTEXT] > 1) + (size[AXIS_DATA] * size[AXIS_CONTEXT] > 1) +
	       (size[AXIS_PIPELINE] > 1) + ends;
}

int64_t plan_overhead(const struct plan_options *o, int groups)
{
	const struct hardware *h = o->hardware;
	if (h->cpu)
		return 0;
	if (o->stack->overhead_gib >= 0)
		return (int64_t)(o->stack->overhead_gib * gibi);
	double libraries = o->stack->library_workspace ? h->library_gib.value : 0;
	return (int64_t)((h->context_gib.value + libraries + h->group_gib.value * groups) * gibi);
}

/* What the ops use inside, as the counting device asks for it. */
struct inside {
	const struct plan_options *o;
	size_t without; /* it would be without cuDNN */
	bool good;
	struct error e;
};

/* What the CPU backend itself says. */
static size_t inside_cpu(struct inside *in, const struct dev_limits *limits)
{
	struct device *dev;
	in->good = dev_open(&dev, &backend_cpu, &(struct dev_options){.threads = (int)in->o->config->device.threads}, &in->e);
	if (!in->good)
		return 0;
	in->good = dev_reserve(dev, limits, &in->e);
	size_t bytes = dev_workspace(dev);
	dev_close(dev);
	return bytes;
}

/* A stack whose libraries' workspace is the hardware's library_gib has none here. */
static size_t inside(void *context, const struct dev_limits *limits)
{
	struct inside *in = context;
	const struct hardware *h = in->o->hardware;
	if (h->cpu)
		return in->without = inside_cpu(in, limits);
	if (in->o->stack->library_workspace)
		return 0;
	in->without = workspace_cuda(limits, 0);
	return h->cudnn_attention.value > 0 ? workspace_cuda(limits, workspace_cudnn(limits)) : in->without;
}

bool plan_half_gradients(const struct plan *p)
{
	return p->stack->fp16_gradients && p->config->precision.compute == F16;
}

/* Bytes of so many of each pair of tokens and head of a micro-batch: no number leaves its type, however long sequences are. */
static int64_t of_pairs(const struct config *c, double bytes)
{
	double tokens = (double)c->model.sequence, heads = (double)(c->model.heads / c->parallel.tensor);
	return (int64_t)fmin(bytes * tokens * tokens * heads * (double)c->batch.micro, 0x1p60);
}

/* What the stack keeps in another way: gradients of 16 bits, in BF16 beside those of 32; of each pair of tokens the softmax, and
 * with dropout its mask and what is left, in all layers of all slots, or where attention is computed again in one. */
static void stack_memory(const struct plan *p, const struct plan_options *o, const struct counted *c, struct ledger *l)
{
	const struct config *config = o->config;
	const struct model_settings *m = &config->model;
	if (plan_half_gradients(p))
		l->arena[MEMORY_GRADIENTS] /= 2;
	else if (o->stack->fp16_gradients && config->precision.compute == BF16)
		l->arena[MEMORY_GRADIENTS] += l->arena[MEMORY_GRADIENTS] / 2;
	if (!o->stack->unfused_attention)
		return;
	int64_t value = (int64_t)dtype_size(config->precision.compute);
	int64_t pair = value + (m->attention_dropout > 0 || m->dropout > 0 ? 1 + value : 0);
	bool kept = config->parallel.recompute == RECOMPUTE_NONE && !p->attention_again;
	double copies = kept ? (double)c->run.gpt.slot_count * (double)c->run.gpt.positions : 1;
	l->arena[MEMORY_ACTIVATIONS] += of_pairs(config, (double)pair * copies);
	l->arena[MEMORY_SCRATCH] += of_pairs(config, (double)value);
}

bool plan_count_stage(struct plan *p, const struct plan_options *o, int stage, struct record *record, struct error *e)
{
	struct counted *c = calloc(1, sizeof *c);
	struct plan_stage *s = &p->stage[stage];
	struct mesh mesh = p->mesh;
	struct inside in = {.o = o, .good = true};

	check(c);
	mesh.at[AXIS_PIPELINE] = stage;
	mesh.rank = mesh_rank_of(&mesh, mesh.at);
	if (!counted_open(c, o->config, &mesh, inside, &in, e)) {
		free(c);
		return false;
	}
	if (!in.good)
		*e = in.e;
	struct record none;
	record_init(&none);
	ledger_make(&s->ledger, c, record ? counted_step(c) : &none);
	if (record)
		*record = cost_take_record(c->dev);
	s->without_cudnn = (int64_t)in.without;
	s->layers = c->run.gpt.layers;
	s->overhead = plan_overhead(o, plan_groups(&p->mesh, c->run.grad.tied != NULL));
	stack_memory(p, o, c, &s->ledger);
	s->total = s->overhead + s->ledger.workspace;
	for (int k = 0; k < MEMORY_KINDS; k++)
		s->total += s->ledger.arena[k];
	p->parameters = param_total(&c->run.params);
	counted_close(c);
	free(c);
	return in.good;
}

#include "train/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void optim_build(struct optim *o, struct device *dev, const struct param_table *params, const struct step_rules *rules,
		 struct memory *memory)
{
	struct arena *a = &memory->arena[MEMORY_OPTIMIZER];
	enum dtype type = dtype_sum(params->dtype);

	*o = (struct optim){.dev = dev, .params = params, .rules = *rules};
	o->items = calloc((size_t)params->count, sizeof *o->items);
	check(o->items);
	for (int i = 0; i < params->count; i++) {
		const struct param *p = &params->params[i];
		if (!p->here)
			continue;
		struct adamw_item *item = &o->items[o->count++];
		*item = (struct adamw_item){.grad = p->grad, .decay = p->decay};
		if (params->dtype == type) {
			item->master = p->weight;
		} else {
			item->master = arena_tensor(a, type, p->dims, p->grad.shape);
			item->weight = p->weight;
		}
		item->m = arena_tensor(a, type, p->dims, p->grad.shape);
		item->v = arena_tensor(a, type, p->dims, p->grad.shape);
	}
}

void optim_finish(struct optim *o)
{
	free(o->items);
	*o = (struct optim){0};
}

void optim_masters_changed(struct optim *o)
{
	for (int64_t i = 0; i < o->count; i++)
		if (tensor_given(o->items[i].weight))
			op_convert(o->dev, &(struct op_convert){.to = o->items[i].weight, .from = o->items[i].master});
}

/* The values of p's box, in pieces, to the master; padding stays zero. */
static void initialise(struct device *dev, const struct param *p, struct tensor master, uint64_t seed, float *piece,
		       int64_t room)
{
	int64_t count = box_count(&p->box);
	struct tensor all = tensor_1d(master.data, master.dtype, tensor_count(master));
	for (int64_t begin = 0; begin < count; begin += room) {
		int64_t n = count - begin < room ? count - begin : room;
		param_initial(p, seed, begin, n, piece);
		dev_write(dev, Q_COMPUTE, tensor_rows(all, begin, n), piece);
		dev_finish(dev, dev_mark(dev, Q_COMPUTE));
	}
}

void optim_initialise(struct optim *o, uint64_t seed)
{
	enum { PIECE = 1 << 22 };
	float *piece = malloc(PIECE * sizeof *piece);
	int64_t at = 0;

	check(piece && dtype_sum(o->params->dtype) == F32);
	for (int i = 0; i < o->params->count; i++) {
		const struct param *p = &o->params->params[i];
		if (!p->here)
			continue;
		struct adamw_item *item = &o->items[at++];
		dev_zero(o->dev, Q_COMPUTE, item->master);
		dev_zero(o->dev, Q_COMPUTE, item->m);
		dev_zero(o->dev, Q_COMPUTE, item->v);
		initialise(o->dev, p, item->master, seed, piece, PIECE);
	}
	free(piece);
	optim_masters_changed(o);
}

static void add(struct state *state, const struct param *p, const char *kind, struct tensor local, bool writer,
		bool optional)
{
	struct state_entry entry = {
		.dtype = local.dtype, .dims = p->dims, .box = p->box, .local = local,
		.owner = writer && p->owner, .optional = optional,
	};
	memcpy(entry.shape, p->shape, sizeof entry.shape);
	snprintf(entry.name, sizeof entry.name, "%s/%s", kind, p->name);
	state_add(state, &entry);
}

void optim_add_state(const struct optim *o, struct state *state, bool writer)
{
	int64_t at = 0;
	for (int i = 0; i < o->params->count; i++) {
		const struct param *p = &o->params->params[i];
		if (!p->here)
			continue;
		const struct adamw_item *item = &o->items[at++];
		add(state, p, "weight", item->master, writer, false);
		add(state, p, "m", item->m, writer, true);
		add(state, p, "v", item->v, writer, true);
	}
}

void optim_update(struct optim *o)
{
	op_adamw(o->dev, &(struct op_adamw){.items = o->items, .count = o->count, .rules = o->rules});
}

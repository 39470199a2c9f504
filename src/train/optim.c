#include "train/optim.h"

#include <stdlib.h>

#include "train/initial.h"

/* Masters and moments of a bucket's slice. */
static void build_bucket(struct optim *o, int bucket, struct memory *memory)
{
	const struct param_bucket *b = &o->o.params->buckets[bucket];
	const struct slices *s = o->o.slices;
	struct arena *a = &memory->arena[MEMORY_OPTIMIZER];
	enum dtype type = dtype_sum(o->o.params->dtype);
	struct tensor weights = slices_own(s, b->weights), grads = slices_own(s, b->grads);
	int64_t count = tensor_count(weights);
	bool apart = weights.dtype != type;
	struct tensor master = apart ? arena_1d(a, type, count) : weights;
	struct tensor m = arena_1d(a, type, count), v = arena_1d(a, type, count);

	for (int i = s->first[bucket]; i < s->first[bucket + 1]; i++) {
		const struct slices_piece *p = &s->pieces[i];
		o->items[i] = (struct adamw_item){
			.master = slices_part(p, master), .m = slices_part(p, m), .v = slices_part(p, v),
			.grad = slices_part(p, grads), .decay = p->param->decay,
			.weight = apart ? slices_part(p, weights) : (struct tensor){0},
		};
	}
}

void optim_build(struct optim *o, const struct optim_options *options, struct memory *memory)
{
	int buckets = options->params->bucket_count;
	*o = (struct optim){.o = *options};
	check(options->slices->count == 1 || !options->data || options->slices->count == comm_size(options->data));
	o->items = calloc((size_t)options->slices->pieces_count + 1, sizeof *o->items);
	o->gathered = calloc((size_t)buckets, sizeof *o->gathered);
	check(o->items && o->gathered);
	for (int i = 0; i < buckets; i++)
		build_bucket(o, i, memory);
}

void optim_finish(struct optim *o)
{
	free(o->items);
	free(o->gathered);
	*o = (struct optim){0};
}

static void gather(struct optim *o, int bucket)
{
	struct tensor weights = o->o.params->buckets[bucket].weights;
	struct device *dev = o->o.dev;
	if (o->o.slices->count == 1)
		return;
	dev_wait(dev, Q_DATA, dev_mark(dev, Q_COMPUTE));
	comm_all_gather(o->o.data, Q_DATA, weights, slices_own(o->o.slices, weights));
	o->gathered[bucket] = dev_mark(dev, Q_DATA);
	if (!o->o.overlap)
		optim_use(o, bucket);
}

void optim_use(const struct optim *o, int bucket)
{
	if (o->o.slices->count > 1)
		dev_wait(o->o.dev, Q_COMPUTE, o->gathered[bucket]);
}

void optim_use_all(const struct optim *o)
{
	for (int i = 0; i < o->o.params->bucket_count; i++)
		optim_use(o, i);
}

void optim_masters_changed(struct optim *o)
{
	for (int i = 0; i < o->o.slices->pieces_count; i++)
		if (tensor_given(o->items[i].weight))
			op_convert(o->o.dev, &(struct op_convert){.to = o->items[i].weight, .from = o->items[i].master});
	for (int i = 0; i < o->o.params->bucket_count; i++)
		gather(o, i);
}

/* The values of what a piece has of its parameter's box, part by part, to its master; padding stays zero. */
static void initialise(struct device *dev, const struct slices_piece *p, struct tensor master, uint64_t seed, float *part,
		       int64_t room)
{
	int64_t end = box_count(&p->param->box), n;
	end = p->begin + p->count < end ? p->begin + p->count : end;
	for (int64_t begin = p->begin; begin < end; begin += n) {
		n = end - begin < room ? end - begin : room;
		initial_values(p->param, seed, begin, n, part, initial_threads(dev));
		dev_write(dev, Q_COMPUTE, tensor_rows(master, begin - p->begin, n), part);
		dev_finish(dev, dev_mark(dev, Q_COMPUTE));
	}
}

void optim_initialise(struct optim *o, uint64_t seed)
{
	enum { PART = 1 << 22 };
	float *part = malloc(PART * sizeof *part);

	check(part && dtype_sum(o->o.params->dtype) == F32);
	for (int i = 0; i < o->o.slices->pieces_count; i++) {
		const struct adamw_item *item = &o->items[i];
		dev_zero(o->o.dev, Q_COMPUTE, item->master);
		dev_zero(o->o.dev, Q_COMPUTE, item->m);
		dev_zero(o->o.dev, Q_COMPUTE, item->v);
		initialise(o->o.dev, &o->o.slices->pieces[i], item->master, seed, part, PART);
	}
	free(part);
	optim_masters_changed(o);
}

void optim_update(struct optim *o)
{
	const int *first = o->o.slices->first;
	for (int i = 0; i < o->o.params->bucket_count; i++) {
		if (first[i + 1] > first[i])
			op_adamw(o->o.dev, &(struct op_adamw){
				.items = o->items + first[i], .count = first[i + 1] - first[i], .rules = o->o.rules,
			});
		gather(o, i);
	}
}

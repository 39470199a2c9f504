#include "train/run.h"

#include "model/recompute.h"

#include <stdlib.h>
#include <xxhash.h>

/* Adds e to the others' view: all ranks go on, or all stop with the same cause. */
static bool agreed(struct comm *world, struct error *e, bool good)
{
	if (good)
		*e = (struct error){0};
	return comm_agree(world, e);
}

struct step_rules run_rules(const struct config *c)
{
	const struct optimizer_settings *o = &c->optimizer;
	const struct precision_settings *p = &c->precision;
	return (struct step_rules){
		.schedule = o->schedule, .lr = o->lr, .min_lr = o->min_lr,
		.warmup_steps = o->warmup_steps, .decay_steps = o->decay_steps,
		.beta1 = o->beta1, .beta2 = o->beta2, .epsilon = o->epsilon,
		.weight_decay = o->weight_decay, .clip = o->clip,
		.dynamic_scale = p->compute == F16 && p->loss_scale == 0,
		.scale_min = p->loss_scale_min, .scale_window = p->loss_scale_window,
		.sequence = c->model.sequence, .global_batch = c->batch.global,
	};
}

struct scalars run_scalars(const struct config *c)
{
	const struct precision_settings *p = &c->precision;
	double scale = p->loss_scale > 0 ? p->loss_scale : p->compute == F16 ? p->loss_scale_initial : 1.0;
	return (struct scalars){.loss_scale = scale};
}

/* FLOPs of one token in one layer's products and attention, and in the head, forward. */
static double layer_flops(const struct model_settings *m)
{
	double C = (double)m->hidden, F = (double)m->ffn, T = (double)m->sequence;
	double Q = (double)(m->heads * m->head_size), K = (double)(m->kv_heads * m->head_size);
	double matrices = m->activation == ACTIVATION_SWIGLU ? 3 : 2;
	return 2 * (matrices * C * F + C * (Q + 2 * K) + Q * C) + 2 * T * Q;
}

static double head_flops(const struct model_settings *m)
{
	return 2 * (double)m->hidden * (double)m->vocab;
}

double run_step_flops(const struct config *c)
{
	double tokens = (double)c->batch.global * (double)c->model.sequence;
	return 3 * tokens * ((double)c->model.layers * layer_flops(&c->model) + head_flops(&c->model));
}

/* auto: wherever the rows of a micro-batch divide by the tensor ranks. */
bool run_sequence(const struct config *c, int tensor)
{
	bool divides = c->batch.micro * (c->model.sequence / c->parallel.context) % tensor == 0;
	return tensor > 1 && c->parallel.sequence != SEQUENCE_OFF && divides;
}

static enum schedule_kind schedule_of(enum pipeline_schedule s)
{
	static const enum schedule_kind kinds[] = {
		[PIPELINE_1F1B] = SCHEDULE_1F1B, [PIPELINE_INTERLEAVED] = SCHEDULE_INTERLEAVED,
		[PIPELINE_ZERO_BUBBLE] = SCHEDULE_ZERO_BUBBLE,
	};
	return kinds[s];
}

static void bucket_use(void *run, int bucket)
{
	optim_use(&((struct run *)run)->optim, bucket);
}

static void bucket_final(void *run, int bucket)
{
	grad_final(&((struct run *)run)->grad, bucket);
}

/* All that takes memory, in one order: called once with measuring arenas and once with real ones. */
static void build(struct run *r, struct device *dev)
{
	const struct config *c = r->config;
	const struct mesh *m = &r->mesh;
	int stage = m->at[AXIS_PIPELINE], stages = m->size[AXIS_PIPELINE];
	int tensor = m->size[AXIS_TENSOR];
	int chunks = (int)c->parallel.chunks;

	struct step_options step = {
		.pipe = r->groups.pipe, .schedule = schedule_of(c->parallel.schedule), .stage = stage, .stages = stages,
		.chunks = chunks,
		.data_rank = m->at[AXIS_DATA], .data_size = m->size[AXIS_DATA], .micros = r->micros,
	};
	step_plan(&r->step, &step);
	param_table_init(&r->params, &c->model, c->precision.compute, tensor, m->at[AXIS_TENSOR]);
	r->params.slices = c->parallel.shard_optimizer ? comm_size(r->groups.data) : 1;
	gpt_build(&r->gpt, &(struct gpt_options){
		.model = &c->model, .params = &r->params, .dev = dev, .tensor = r->groups.tensor,
		.tensor_size = tensor, .tensor_rank = m->at[AXIS_TENSOR], .context = r->groups.context,
		.context_size = m->size[AXIS_CONTEXT], .context_rank = m->at[AXIS_CONTEXT], .stage = stage, .stages = stages,
		.chunks = chunks, .layers_of = r->stage_layers, .batch = c->batch.micro,
		.sequence = run_sequence(c, tensor), .overlap = c->parallel.overlap, .whole = c->parallel.whole,
		.seed = (uint64_t)c->run.seed, .kept = r->kept, .slots = r->step.train.slots,
		.inputs = r->step.train.inputs, .waits = r->step.waits,
		.watch = {.context = r, .use = bucket_use, .final = c->parallel.whole ? NULL : bucket_final},
	}, &r->memory);
	slices_init(&r->slices, &r->params, r->params.slices > 1 ? comm_rank(r->groups.data) : 0);
	step_build(&r->step, &r->gpt, &r->memory);
	grad_build(&r->grad, &(struct grad_options){
		.dev = dev, .groups = &r->groups, .params = &r->params, .slices = &r->slices, .model = &c->model,
		.rules = r->rules, .partial = run_sequence(c, tensor), .ends = r->groups.ends != NULL,
		.overlap = c->parallel.overlap,
	}, &r->memory);
	optim_build(&r->optim, &(struct optim_options){
		.dev = dev, .params = &r->params, .slices = &r->slices, .data = r->groups.data, .rules = r->rules,
		.overlap = c->parallel.overlap,
	}, &r->memory);
}

static void take_apart(struct run *r)
{
	optim_finish(&r->optim);
	grad_finish(&r->grad);
	step_finish(&r->step);
	slices_finish(&r->slices);
	gpt_finish(&r->gpt);
	param_table_finish(&r->params);
}

static bool split_layers(struct run *r, struct error *e)
{
	const struct config *c = r->config;
	int stages = r->mesh.size[AXIS_PIPELINE], chunks = (int)c->parallel.chunks;
	r->stage_layers = calloc((size_t)stages * (size_t)chunks, sizeof *r->stage_layers);
	check(r->stage_layers);
	return mesh_stages(r->stage_layers, stages, chunks, c->model.layers,
			   head_flops(&c->model) / layer_flops(&c->model), c->parallel.stages, e);
}

/* Leaves memory as the run that fits will need it. */
static bool measure(struct run *r, struct comm *world, struct error *e)
{
	const struct config *c = r->config;
	r->kept = calloc((size_t)c->model.layers, sizeof *r->kept);
	check(r->kept);
	for (int64_t i = 0; i < c->model.layers; i++)
		r->kept[i] = recompute_kept(c->parallel.recompute);
	memory_measure(&r->memory);
	build(r, NULL);
	struct dev_limits limits = gpt_limits(&r->gpt);
	if (!agreed(world, e, dev_reserve(r->dev, &limits, e)))
		return false;
	if (c->parallel.recompute == RECOMPUTE_AUTO) {
		run_fit_memory(r);
		take_apart(r);
		memory_measure(&r->memory);
		build(r, NULL);
	}
	take_apart(r);
	return true;
}

bool run_open(struct run *r, const struct config *config, const struct mesh *mesh, struct device *dev,
	      struct comm *world, struct error *e)
{
	*r = (struct run){.config = config, .dev = dev, .mesh = *mesh, .rules = run_rules(config)};
	r->micros = (int)(config->batch.global / config->batch.micro / mesh->size[AXIS_DATA]);
	check(r->micros >= 1);
	if (!split_layers(r, e) || !groups_open(&r->groups, world, mesh, e)) {
		run_close(r);
		return false;
	}
	if (!measure(r, world, e) || !agreed(world, e, run_check_memory(r, e) && memory_open(&r->memory, dev, e))) {
		run_close(r);
		return false;
	}
	build(r, dev);
	state_init(&r->state);
	optim_add_state(&r->optim, &r->state);
	return true;
}

void run_close(struct run *r)
{
	state_finish(&r->state);
	for (int q = 0; r->memory.dev && q < QUEUES; q++) /* weights may still be on their way */
		dev_finish(r->dev, dev_mark(r->dev, (enum queue)q));
	if (r->params.params)
		take_apart(r);
	memory_close(&r->memory);
	groups_close(&r->groups);
	free(r->stage_layers);
	free(r->kept);
	*r = (struct run){0};
}

void run_initialise(struct run *r)
{
	struct scalars s = run_scalars(r->config);
	optim_initialise(&r->optim, (uint64_t)r->config->run.seed);
	dev_write_scalars(r->dev, Q_COMPUTE, &s);
	dev_finish(r->dev, dev_mark(r->dev, Q_COMPUTE));
}

void run_step(struct run *r, const struct feed *feed, int64_t sample, bool stop)
{
	step_train(&r->step, feed, sample, grad_totals(&r->grad));
	grad_reduce(&r->grad, stop);
	optim_update(&r->optim);
}

void run_compare_ends(struct run *r)
{
	const struct param *tied = r->grad.tied;
	if (!tied)
		return;
	size_t bytes = tensor_bytes(tied->weight);
	void *copy = malloc(bytes);
	check(copy);
	optim_use_all(&r->optim);
	dev_read(r->dev, Q_COMPUTE, copy, tied->weight);
	dev_finish(r->dev, dev_mark(r->dev, Q_COMPUTE));
	XXH64_hash_t mine = XXH3_64bits(copy, bytes), both[2];
	free(copy);
	comm_host_gather(r->groups.ends, both, &mine, sizeof mine);
	if (both[0] != both[1])
		die(CODE_MACHINE, "the token embedding on the last stage is no longer the first stage's: "
		    "a rank computed or received something wrong");
}

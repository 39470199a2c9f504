#include "plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const double gibi = 0x1p30;

/* What the stack does in another way. */
static bool apply_stack(struct plan *p, const struct plan_options *o, struct error *e)
{
	struct config *c = o->config;
	char *list;
	size_t room;
	if (o->stack->no_overlap)
		c->parallel.whole = true; /* the waits are the simulation's */
	p->attention_again = o->stack->selective_attention && c->parallel.recompute == RECOMPUTE_SELECTIVE;
	if (p->attention_again)
		c->parallel.recompute = RECOMPUTE_NONE; /* all but the scores is kept */
	int64_t stages = c->parallel.pipeline * c->parallel.chunks;
	/* At most the first and the last have no layer: of more stages there is no list to write, and config_check refuses them. */
	if (!o->stack->even_stages || stages == 1 || stages > c->model.layers + 2 || strcmp(c->parallel.stages, "auto") != 0)
		return true;
	FILE *text = open_memstream(&list, &room);
	check(text);
	for (int64_t i = 0; i < stages; i++)
		fprintf(text, "%s%lld", i ? "," : "", (long long)(c->model.layers / stages + (i < c->model.layers % stages)));
	fclose(text);
	bool good = config_set(c, "parallel.stages", list, CODE_USAGE, e);
	free(list);
	return good;
}

static bool fit_mesh(const struct plan_options *o, struct mesh *mesh, struct error *e)
{
	struct config *c = o->config;
	const struct parallel_settings *s = &c->parallel;
	int64_t model = s->tensor * s->context * s->pipeline, world = o->devices;
	if ((double)model * (double)(s->data > 0 ? s->data : 1) > INT_MAX)
		return mesh_init(mesh, s, 0, INT_MAX, "mtrain", c->path, e); /* which says so */
	if (world == 0)
		world = model * (s->data > 0 ? s->data : 1);
	if (world % model != 0 || (s->data > 0 && s->data * model != world)) {
		int64_t less = s->data > 0 ? s->data * model : world / model * model;
		char other[32] = "";
		if (s->data == 0 && less > 0)
			snprintf(other, sizeof other, "%lld or ", (long long)less);
		return error_set(e, CODE_USAGE, "%s: %lld devices cannot be divided into parallel.tensor*context*pipeline = %lld%s: %s%lld devices "
				 "would do", c->path, (long long)world, (long long)model, s->data > 0 ? " times parallel.data" : "", other,
				 (long long)(s->data > 0 ? less : (world / model + 1) * model));
	}
	if (!mesh_init(mesh, s, 0, (int)world, "mtrain", c->path, e))
		return false;
	c->parallel.data = mesh->size[AXIS_DATA];
	return config_check(c, e);
}

static bool check_type(const struct plan_options *o, struct error *e)
{
	enum dtype type = o->config->precision.compute;
	if (hardware_peak(o->hardware, type) > 0)
		return true;
	return error_set(e, CODE_USAGE, "%s: %s has no %s: precision.compute = %s would do", o->config->path, o->hardware->name,
			 dtype_name(type), type == BF16 ? "fp16" : "fp32");
}

static void judge(struct plan *p)
{
	for (int i = 0; i < p->stages; i++)
		if (p->stage[i].total > p->stage[p->fullest].total)
			p->fullest = i;
	p->fits = p->stage[p->fullest].total <= p->memory_limit;
}

struct timing plan_timing(const struct plan *p)
{
	return (struct timing){
		.hardware = p->hardware, .stack = p->stack, .mesh = &p->mesh, .half_gradients = plan_half_gradients(p),
		.rows_split = run_sequence(p->config, p->mesh.size[AXIS_TENSOR]),
		.attention_again = p->attention_again,
	};
}

static void play(struct plan *p, const struct plan_options *o, const struct record *records)
{
	struct timing timing = plan_timing(p);
	const struct record **list = calloc((size_t)p->stages, sizeof *list);
	struct simulated_stage *times = calloc((size_t)p->stages, sizeof *times);
	double devices = mesh_world(&p->mesh), peak = hardware_peak(p->hardware, o->config->precision.compute), flops = 0;

	check(list && times);
	for (int i = 0; i < p->stages; i++)
		list[i] = &records[i];
	p->step_seconds = simulate(&(struct simulate_options){
		.timing = &timing, .records = list, .stages = p->stages, .box = o->box, .context = o->context,
	}, times);
	for (int i = 0; i < p->stages; i++) {
		p->stage[i].time = times[i];
		for (int c = 0; c < CAUSES; c++)
			p->seconds[c] += times[i].seconds[c] / p->stages;
		if (times[i].seconds[CAUSE_BUBBLE] < times[p->slowest].seconds[CAUSE_BUBBLE])
			p->slowest = i;
		flops += p->stage[i].ledger.flops / p->stages;
	}
	p->bubble_fraction = p->seconds[CAUSE_BUBBLE] / p->step_seconds;
	p->tokens_per_second = (double)o->config->batch.global * (double)o->config->model.sequence / p->step_seconds;
	p->tflops_per_device = run_step_flops(o->config) / p->step_seconds / devices * 1e-12;
	p->mfu = p->tflops_per_device * 1e12 / peak;
	p->hardware_utilization = flops / p->step_seconds / peak;
	free(list);
	free(times);
}

/* What the device has, or less if less is given, and what of it recompute = auto may fill. */
static bool limit_memory(struct plan *p, const struct plan_options *o, struct error *e)
{
	int64_t beside = plan_overhead(o, plan_groups(&p->mesh, o->config->model.tied && p->mesh.size[AXIS_PIPELINE] > 1));
	char has[32], takes[32];
	p->memory_set = o->memory > 0 && o->memory < p->memory_limit - beside;
	if (p->memory_set)
		p->memory_limit = o->memory + beside;
	p->memory_own = p->memory_limit - beside;
	/* What does not fit is planned too, and said, but where the choice of what to keep depends on it. */
	o->config->device.memory = o->config->parallel.recompute == RECOMPUTE_AUTO ? p->memory_own : 0;
	if (p->memory_own > 0)
		return true;
	return error_set(e, CODE_USAGE, "%s: %s has %s, and driver, libraries and groups of ranks take %s of it", o->config->path,
			 o->hardware->name, text_bytes(has, sizeof has, (uint64_t)p->memory_limit),
			 text_bytes(takes, sizeof takes, (uint64_t)beside));
}

bool plan_prepare(struct plan *p, const struct plan_options *o, struct error *e)
{
	*p = (struct plan){.config = o->config, .hardware = o->hardware, .stack = o->stack};
	if (!config_require(o->config, (const char *const[]){"model", "batch", NULL}, e) || !apply_stack(p, o, e))
		return false;
	p->memory_limit = (int64_t)(o->hardware->memory_gib.value * gibi);
	o->config->device.memory = p->memory_limit; /* until the mesh says what is beside it */
	if (!config_check(o->config, e) || !fit_mesh(o, &p->mesh, e) || !check_type(o, e) || !limit_memory(p, o, e))
		return false;
	p->stages = p->mesh.size[AXIS_PIPELINE];
	p->stage = calloc((size_t)p->stages, sizeof *p->stage);
	check(p->stage);
	return true;
}

bool plan_make(struct plan *p, const struct plan_options *o, struct error *e)
{
	if (!plan_prepare(p, o, e))
		return false;
	struct record *records = calloc((size_t)p->stages, sizeof *records);
	check(records);
	bool good = true;
	for (int i = 0; good && i < p->stages; i++)
		good = plan_count_stage(p, o, i, &records[i], e);
	if (good)
		judge(p);
	if (good)
		play(p, o, records);
	for (int i = 0; i < p->stages; i++)
		record_finish(&records[i]);
	free(records);
	if (!good)
		plan_finish(p);
	return good;
}

void plan_finish(struct plan *p)
{
	free(p->stage);
	*p = (struct plan){0};
}

int64_t plan_traffic(const struct plan *p, const char *group)
{
	int64_t most = 0;
	for (int i = 0; i < p->stages; i++) {
		const struct ledger_group *g = ledger_find(&p->stage[i].ledger, group);
		int64_t bytes = 0;
		for (int k = 0; g && k < COMM_CALLS; k++)
			bytes += g->count.bytes[k];
		most = bytes > most ? bytes : most;
	}
	return most;
}

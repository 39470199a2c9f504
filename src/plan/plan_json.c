#include "plan/plan_report.h"

#include "base/json.h"

static cJSON *object(cJSON *parent, const char *name)
{
	cJSON *o = name ? cJSON_AddObjectToObject(parent, name) : cJSON_CreateObject();
	check(o);
	return o;
}

static void number(cJSON *o, const char *name, double value)
{
	check(json_add_number(o, name, value));
}

static void count(cJSON *o, const char *name, int64_t value)
{
	check(json_add_count(o, name, value));
}

static void memory(cJSON *all, const struct plan *p)
{
	cJSON *list = cJSON_AddArrayToObject(all, "memory");
	check(list);
	for (int i = 0; i < p->stages; i++) {
		const struct plan_stage *s = &p->stage[i];
		cJSON *o = object(NULL, NULL);
		cJSON_AddItemToArray(list, o);
		count(o, "stage", i);
		count(o, "layers", s->layers);
		for (int k = 0; k < MEMORY_KINDS; k++)
			count(o, memory_name((enum memory_kind)k), s->ledger.arena[k]);
		count(o, "workspace", s->ledger.workspace);
		count(o, "overhead", s->overhead);
		count(o, "total", s->total);
	}
}

static void traffic(cJSON *all, const struct plan *p)
{
	static const char *const axes[] = {"tensor", "context", "data", "pipeline", "embedding", "world"};
	cJSON *o = object(all, "traffic_bytes");
	for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
		count(o, axes[i], plan_traffic(p, axes[i]));
}

static void way(void *context, const char *key, double value)
{
	number(context, key, value);
}

static void constant(void *context, const char *key, const struct hardware_number *n)
{
	cJSON *o = object(context, key);
	number(o, "value", n->value);
	check(cJSON_AddStringToObject(o, "mark", hardware_mark_name(n->mark)) && cJSON_AddStringToObject(o, "source", n->source));
}

cJSON *plan_report_json(const struct plan *p)
{
	const struct config *c = p->config;
	cJSON *all = object(NULL, NULL);
	check(cJSON_AddStringToObject(all, "hardware", p->hardware->name) && cJSON_AddStringToObject(all, "stack", p->stack->name));
	count(all, "devices", mesh_world(&p->mesh));
	cJSON *layout = object(all, "layout");
	count(layout, "data", p->mesh.size[AXIS_DATA]);
	count(layout, "tensor", p->mesh.size[AXIS_TENSOR]);
	count(layout, "pipeline", p->mesh.size[AXIS_PIPELINE]);
	count(layout, "context", p->mesh.size[AXIS_CONTEXT]);
	count(layout, "chunks", c->parallel.chunks);
	count(layout, "micro", c->batch.micro);
	count(all, "parameters", p->parameters);
	number(all, "step_seconds", p->step_seconds);
	number(all, "tokens_per_second", p->tokens_per_second);
	number(all, "tflops_per_device", p->tflops_per_device);
	number(all, "mfu", p->mfu);
	number(all, "hardware_utilization", p->hardware_utilization);
	number(all, "bubble_fraction", p->bubble_fraction);
	check(cJSON_AddBoolToObject(all, "fits", p->fits));
	count(all, "memory_limit", p->memory_limit);
	memory(all, p);
	traffic(all, p);
	cJSON *time = object(all, "time_seconds");
	for (int i = 0; i < CAUSES; i++)
		number(time, simulate_cause((enum cause)i), p->seconds[i]);
	cJSON *ledgers = cJSON_AddArrayToObject(all, "ledger");
	check(ledgers);
	for (int i = 0; i < p->stages; i++)
		cJSON_AddItemToArray(ledgers, ledger_json(&p->stage[i].ledger));
	hardware_each(p->hardware, constant, object(all, "constants"));
	cJSON *ways = object(all, "stack_constants");
	stack_each(p->stack, way, ways);
	check(cJSON_AddStringToObject(ways, "fitted_on", p->stack->fit));
	return all;
}

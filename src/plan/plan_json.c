#include "plan/plan_report.h"

#include "base/json.h"

static void memory(cJSON *all, const struct plan *p)
{
	cJSON *list = json_put_array(all, "memory");
	for (int i = 0; i < p->stages; i++) {
		const struct plan_stage *s = &p->stage[i];
		cJSON *o = json_put_object(list, NULL);
		json_put_count(o, "stage", i);
		json_put_count(o, "layers", s->layers);
		for (int k = 0; k < MEMORY_KINDS; k++)
			json_put_count(o, memory_name((enum memory_kind)k), s->ledger.arena[k]);
		json_put_count(o, "workspace", s->ledger.workspace);
		json_put_count(o, "workspace_without_cudnn", s->without_cudnn);
		json_put_count(o, "overhead", s->overhead);
		json_put_count(o, "total", s->total);
	}
}

static void traffic(cJSON *all, const struct plan *p)
{
	static const char *const axes[] = {"tensor", "context", "data", "pipeline", "embedding", "world"};
	cJSON *o = json_put_object(all, "traffic_bytes");
	for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
		json_put_count(o, axes[i], plan_traffic(p, axes[i]));
}

static void way(void *context, const char *key, double value)
{
	json_put_number(context, key, value);
}

static void constant(void *context, const char *key, const struct hardware_number *n)
{
	cJSON *o = json_put_object(context, key);
	json_put_number(o, "value", n->value);
	json_put_text(o, "mark", hardware_mark_name(n->mark));
	json_put_text(o, "source", n->source);
}

cJSON *plan_report_constants(const struct hardware *h)
{
	cJSON *all = json_put_object(NULL, NULL);
	hardware_each(h, constant, all);
	return all;
}

cJSON *plan_report_json(const struct plan *p)
{
	const struct config *c = p->config;
	cJSON *all = json_put_object(NULL, NULL);
	json_put_text(all, "hardware", p->hardware->name);
	json_put_text(all, "stack", p->stack->name);
	json_put_count(all, "devices", mesh_world(&p->mesh));
	cJSON *layout = json_put_object(all, "layout");
	json_put_count(layout, "data", p->mesh.size[AXIS_DATA]);
	json_put_count(layout, "tensor", p->mesh.size[AXIS_TENSOR]);
	json_put_count(layout, "pipeline", p->mesh.size[AXIS_PIPELINE]);
	json_put_count(layout, "context", p->mesh.size[AXIS_CONTEXT]);
	json_put_count(layout, "chunks", c->parallel.chunks);
	json_put_count(layout, "micro", c->batch.micro);
	json_put_count(all, "parameters", p->parameters);
	json_put_number(all, "step_seconds", p->step_seconds);
	json_put_number(all, "tokens_per_second", p->tokens_per_second);
	json_put_number(all, "tflops_per_device", p->tflops_per_device);
	json_put_number(all, "mfu", p->mfu);
	json_put_number(all, "hardware_utilization", p->hardware_utilization);
	json_put_number(all, "bubble_fraction", p->bubble_fraction);
	json_put_flag(all, "fits", p->fits);
	json_put_count(all, "memory_limit", p->memory_limit);
	memory(all, p);
	traffic(all, p);
	cJSON *time = json_put_object(all, "time_seconds");
	for (int i = 0; i < CAUSES; i++)
		json_put_number(time, simulate_cause((enum cause)i), p->seconds[i]);
	cJSON *ledgers = json_put_array(all, "ledger");
	for (int i = 0; i < p->stages; i++)
		json_put(ledgers, NULL, ledger_json(&p->stage[i].ledger));
	json_put(all, "constants", plan_report_constants(p->hardware));
	cJSON *ways = json_put_object(all, "stack_constants");
	stack_each(p->stack, way, ways);
	json_put_text(ways, "fitted_on", p->stack->fit);
	return all;
}

#include "cudnn_plan.h"

#include <math.h>
#include <string.h>

#include "cudnn_graph.h"

enum { OFFERS = 16, HALF = 2 /* bytes of F16 and BF16 */ };

/* A plan by one way of computing the graph, kept if it fits. What a refused one was made of is given back. */
static bool take(struct cudnn_plan *p, const struct cudnn_target *t, cudnnBackendDescriptor_t way, size_t workspace, int first)
{
	struct cudnn_parts *parts = &p->parts;
	cudnnBackendDescriptor_t engine = cudnn_part_make(parts, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnn_part_get(parts, way, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(int64_t){0}, &engine);
	cudnn_part_get(parts, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &(int64_t){0}, &p->engine);
	cudnn_part_get(parts, way, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &(int64_t){0}, &p->workspace);
	bool fits = parts->status == CUDNN_STATUS_SUCCESS && (size_t)p->workspace <= workspace;
	if (fits) {
		p->plan = cudnn_part_make(parts, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
		cudnn_part_refer(parts, p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, way);
		if (t->handle)
			cudnn_part_set(parts, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
		else
			cudnn_part_refer(parts, p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, t->properties);
		cudnn_part_finish(parts, p->plan);
		cudnn_part_get(parts, p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &(int64_t){0}, &p->workspace);
		fits = parts->status == CUDNN_STATUS_SUCCESS && (size_t)p->workspace <= workspace;
	}
	if (!fits) {
		parts->status = CUDNN_STATUS_SUCCESS;
		cudnn_parts_give_back(parts, first);
	}
	return fits;
}

/* The engine of sm_100 whose backward always gives the same bits, with the knobs that NVIDIA's cudnn-frontend has for it in
 * these versions. It does not take grouped heads whose gradients are summed in F32. */
static bool take_blackwell(struct cudnn_plan *p, const struct cudnn_target *t, cudnnBackendDescriptor_t graph, size_t workspace)
{
	static const struct {
		cudnnBackendKnobType_t type;
		int64_t value;
	} knobs[] = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
	enum { KNOBS = sizeof knobs / sizeof *knobs, ENGINE = 5, SINCE = 91800, BEFORE = 92300 };
	struct cudnn_parts *parts = &p->parts;
	cudnnBackendDescriptor_t choices[KNOBS];
	int first = parts->count;
	if (cudnnGetVersion() < SINCE || cudnnGetVersion() >= BEFORE || t->capability < 100 || t->capability > 103)
		return false;
	cudnnBackendDescriptor_t engine = cudnn_part_make(parts, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnn_part_refer(parts, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
	cudnn_part_set(parts, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &(int64_t){ENGINE});
	if (t->properties)
		cudnn_part_refer(parts, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, t->properties);
	cudnn_part_finish(parts, engine);
	for (int i = 0; i < KNOBS; i++) {
		choices[i] = cudnn_part_make(parts, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
		cudnn_part_set(parts, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knobs[i].type);
		cudnn_part_set(parts, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knobs[i].value);
		cudnn_part_finish(parts, choices[i]);
	}
	cudnnBackendDescriptor_t way = cudnn_part_make(parts, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	cudnn_part_refer(parts, way, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
	cudnn_part_set(parts, way, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, choices);
	cudnn_part_finish(parts, way);
	return take(p, t, way, workspace, first);
}

/* The first of the heuristics' offers that fits. */
static bool take_offered(struct cudnn_plan *p, const struct cudnn_target *t, cudnnBackendDescriptor_t graph, size_t workspace)
{
	struct cudnn_parts *parts = &p->parts;
	cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	cudnnBackendDescriptor_t offers[OFFERS], asked = cudnn_part_make(parts, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	int64_t count = 0;
	cudnn_part_refer(parts, asked, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	cudnn_part_set(parts, asked, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (t->properties)
		cudnn_part_refer(parts, asked, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, t->properties);
	cudnn_part_finish(parts, asked);
	for (int i = 0; i < OFFERS; i++)
		offers[i] = cudnn_part_make(parts, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	cudnn_part_get(parts, asked, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, OFFERS, &count, offers);
	if (parts->status != CUDNN_STATUS_SUCCESS)
		return false;
	for (int i = 0; i < count && i < OFFERS; i++)
		if (take(p, t, offers[i], workspace, parts->count)) {
			p->offer = i + 1;
			return true;
		}
	return false;
}

static bool try(struct cudnn_plan *p, const struct cudnn_target *t, const struct attention_key *key, bool backward, int64_t groups,
		size_t workspace)
{
	double heads = (double)(key->heads * (groups ? groups : key->batch * key->groups));
	if (backward && t->capability < 100 && 2 * heads * (double)(key->tokens * key->tokens) > (double)workspace)
		return false; /* ds alone: asking takes a second */
	*p = (struct cudnn_plan){.groups = groups};
	cudnnBackendDescriptor_t graph = (backward ? cudnn_graph_backward : cudnn_graph_forward)(&p->parts, t->handle, key, groups);
	bool good = p->parts.status == CUDNN_STATUS_SUCCESS;
	if (good && !(backward && take_blackwell(p, t, graph, workspace)))
		good = take_offered(p, t, graph, workspace);
	if (!good)
		cudnn_parts_give_back(&p->parts, 0);
	return good;
}

bool cudnn_plan_open(struct cudnn_plan *p, const struct cudnn_target *target, const struct attention_key *key, bool backward,
		     size_t workspace)
{
	*p = (struct cudnn_plan){0};
	if ((key->groups == 1 || key->heads == 1) && try(p, target, key, backward, 0, workspace))
		return true;
	for (int64_t groups = key->groups; groups >= 1; groups--)
		if (key->groups % groups == 0 && try(p, target, key, backward, groups, workspace))
			return true;
	return false;
}

void cudnn_plan_close(struct cudnn_plan *p)
{
	cudnn_parts_give_back(&p->parts, 0);
}

static void *behind(void *memory, int64_t bytes)
{
	return memory ? (char *)memory + bytes : NULL;
}

/* One call of cuDNN: its tensors begin so many bytes into the op's. */
static cudnnStatus_t call(const struct cudnn_plan *p, cudnnHandle_t handle, const struct attention_key *k,
			  const struct cudnn_operands *o, int64_t in, int64_t out, int64_t row, void *workspace)
{
	float scale = (float)k->scale, minus_infinity = -INFINITY, one = 1;
	int64_t key = k->heads * k->size * HALF, value = key + k->size * HALF;
	static const int64_t numbers[] = {CUDNN_Q, CUDNN_K, CUDNN_V, CUDNN_OUT, CUDNN_LSE, CUDNN_SCALE, CUDNN_MINUS_INFINITY,
					  CUDNN_ONE, CUDNN_DOUT, CUDNN_DELTA, CUDNN_DQ, CUDNN_DK, CUDNN_DV};
	enum { ALL = sizeof numbers / sizeof *numbers, FORWARD = 7 };
	void *at[ALL] = {
		behind(o->qkv, in), behind(o->qkv, in + key), behind(o->qkv, in + value), behind(o->out, out), behind(o->lse, row), &scale,
		&minus_infinity, &one, behind(o->dout, out), behind(o->delta, row), behind(o->dqkv, in), behind(o->dqkv, in + key),
		behind(o->dqkv, in + value),
	};
	int64_t count = o->dqkv ? ALL : FORWARD;
	struct cudnn_parts parts = {0};
	cudnnBackendDescriptor_t pack = cudnn_part_make(&parts, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	cudnn_part_set(&parts, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers);
	cudnn_part_set(&parts, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, at);
	cudnn_part_set(&parts, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
	cudnn_part_finish(&parts, pack);
	cudnnStatus_t status = parts.status == CUDNN_STATUS_SUCCESS ? cudnnBackendExecute(handle, p->plan, pack) : parts.status;
	cudnn_parts_give_back(&parts, 0);
	return status;
}

cudnnStatus_t cudnn_plan_run(const struct cudnn_plan *p, cudnnHandle_t handle, const struct attention_key *k,
			     const struct cudnn_operands *o, void *workspace)
{
	int64_t group = (k->heads + 2) * k->size, heads = k->groups * k->heads;
	cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
	if (p->groups == 0)
		return call(p, handle, k, o, 0, 0, 0, workspace);
	for (int64_t i = 0; i < k->batch; i++)
		for (int64_t g = 0; g < k->groups && status == CUDNN_STATUS_SUCCESS; g += p->groups)
			status = call(p, handle, k, o, (i * k->tokens * k->groups + g) * group * HALF,
				      (i * k->tokens * heads + g * k->heads) * k->size * HALF,
				      (i * heads + g * k->heads) * k->tokens * (int64_t)sizeof(float), workspace);
	return status;
}

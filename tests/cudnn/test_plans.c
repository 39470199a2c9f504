/* cuDNN's plans for our attention, made on a machine without a card: for cards that are only described our graphs are finished,
 * the heuristics name an engine, its kernel is compiled, and it needs no more workspace than is taken for the shape. Nothing is
 * computed.
 *
 * Skipped where this cuDNN cannot plan for a described card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cudnn_graph.h"
#include "cudnn_plan.h"
#include "dev/workspace.h"

enum { BLOCK = 128, LITTLE = 1 << 20 };

/* H100 and B200 as NVIDIA describes them, in the form in which cuDNN writes a card's properties down. */
static const char form[] =
	"{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
	"\"multiProcessorCount\": %d, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
	"\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
	"\"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": %lld, "
	"\"smClockRateKHz\": %d, \"memClockRateKHz\": %d, \"l2CacheSize\": %d, \"cudaDeviceId\": 0, \"deviceVer\": %d, "
	"\"driverVer\": 13000, \"deviceName\": \"%s\"}";

struct described {
	struct cudnn_parts parts;
	struct cudnn_target target;
};

static void describe(struct described *d, int capability)
{
	char json[1024];
	bool hopper = capability < 100;
	memset(d, 0, sizeof *d);
	snprintf(json, sizeof json, form, hopper ? 132 : 148, hopper ? 85000000000ll : 190000000000ll, hopper ? 1980000 : 1965000,
		 hopper ? 2619000 : 3996000, hopper ? 50 << 20 : 126 << 20, 10 * capability, hopper ? "NVIDIA H100" : "NVIDIA B200");
	d->target.capability = capability;
	d->target.properties = cudnn_part_make(&d->parts, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	cudnn_part_set(&d->parts, d->target.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
		       (int64_t)strlen(json), json);
	cudnn_part_finish(&d->parts, d->target.properties);
	if (d->parts.status != CUDNN_STATUS_SUCCESS) {
		print_message("skipped: cuDNN %zu does not take a card's description: %s\n", cudnnGetVersion(), d->parts.why);
		cudnn_parts_give_back(&d->parts, 0);
		skip();
	}
}

static struct attention_key key_of(enum dtype type, int64_t batch, int64_t tokens, int64_t groups, int64_t heads, int64_t size)
{
	struct attention_key k;
	memset(&k, 0, sizeof k);
	k.batch = batch, k.tokens = tokens, k.groups = groups, k.heads = heads, k.size = size, k.scale = 0.125, k.type = type;
	return k;
}

static const int64_t sizes[] = {64, 80, 96, 128};

/* Graphs need no card at all: each shape, both types, all of it in one call and a group at a time. */
static void graphs_are_finished(void **state)
{
	(void)state;
	static const int64_t lengths[] = {1000, 1024, 2048, 4096, 8192}, shapes[][2] = {{16, 1}, {1, 8}, {8, 4}};
	for (int i = 0; i < 4 * 5 * 3 * 2 * 2 * 2; i++) {
		bool backward = i & 1, whole = i & 2;
		const int64_t *shape = shapes[i / 8 % 3];
		struct attention_key k = key_of(i & 4 ? BF16 : F16, 2, lengths[i / 24 % 5], shape[0], shape[1], sizes[i / 120]);
		struct cudnn_parts p = {0};
		int64_t groups = whole && (k.groups == 1 || k.heads == 1) ? 0 : whole ? k.groups : 1;
		cudnnBackendDescriptor_t graph = (backward ? cudnn_graph_backward : cudnn_graph_forward)(&p, NULL, &k, groups);
		if (p.status != CUDNN_STATUS_SUCCESS)
			fail_msg("graph %d: %s: %s", i, cudnnGetErrorString(p.status), p.why);
		int64_t engines = 0, count;
		cudnn_part_get(&p, graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, &count, &engines);
		assert_true(engines > 0);
		cudnn_parts_give_back(&p, 0);
	}
}

/* What a card takes for a run of this shape. */
static size_t taken(const struct attention_key *k)
{
	int64_t group = k->heads * k->tokens * k->tokens;
	struct dev_limits limits = {.scores = k->batch * k->groups * group, .group_scores = group};
	return workspace_cudnn(&limits);
}

/* What workspace.c says that a plan needs on sm_90. */
static int64_t said(const struct attention_key *k, bool backward, int64_t groups)
{
	int64_t heads = k->heads * (groups ? groups : k->batch * k->groups), T = (k->tokens + BLOCK - 1) / BLOCK * BLOCK;
	return backward ? 2 * heads * T * T + (k->heads > 1 ? 8 * heads * T * k->size : 0) : 0;
}

/* Whether the library can say what the plan's work is as nodes of a CUDA graph, which work that holds the host cannot be. */
static bool is_nodes(const struct cudnn_plan *p)
{
	cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	struct cudnn_parts parts = {0};
	int64_t count = 0;
	cudnnBackendDescriptor_t way = cudnn_part_make(&parts, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	cudnnBackendDescriptor_t engine = cudnn_part_make(&parts, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnn_part_get(&parts, p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(int64_t){0}, &way);
	cudnn_part_get(&parts, way, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(int64_t){0}, &engine);
	cudnn_part_get(&parts, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count,
		       notes);
	if (parts.status != CUDNN_STATUS_SUCCESS)
		print_message("(%s: %s) ", cudnnGetErrorString(parts.status), parts.why);
	cudnn_parts_give_back(&parts, 0);
	for (int64_t i = 0; i < count; i++)
		if (notes[i] == CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API)
			return true;
	return false;
}

/* groups: what one call should hold, where heads or the workspace limit it; 0: everything. */
static void plan(struct described *d, const struct attention_key *k, bool backward, int64_t groups)
{
	struct cudnn_plan p;
	size_t workspace = taken(k);
	bool good = cudnn_plan_open(&p, &d->target, k, backward, workspace);
	print_message("sm_%d %s %s %lldx%lld heads %lldx%lld of %lld: ", d->target.capability, dtype_name((enum dtype)k->type),
		      backward ? "backward" : "forward", (long long)k->batch, (long long)k->tokens, (long long)k->groups, (long long)k->heads,
		      (long long)k->size);
	if (!good)
		fail_msg("no plan: %s", p.parts.why);
	print_message("engine %lld, %lld groups a call, %.1f MiB of %.1f%s\n", (long long)p.engine, (long long)p.groups,
		      (double)p.workspace * 0x1p-20, (double)workspace * 0x1p-20, is_nodes(&p) ? "" : ", not as nodes of a CUDA graph");
	assert_true(p.workspace >= 0 && (size_t)p.workspace <= workspace);
	if (d->target.capability < 100)
		assert_true(p.workspace <= said(k, backward, groups) + LITTLE);
	assert_int_equal(p.groups, groups);
	cudnn_plan_close(&p);
}

struct shape {
	struct attention_key key;
	int64_t groups; /* a call of backward */
};

static void both(struct described *d, const struct shape *s)
{
	plan(d, &s->key, false, s->key.groups == 1 || s->key.heads == 1 ? 0 : s->key.groups);
	plan(d, &s->key, true, s->groups);
}

static void hopper(void **state)
{
	(void)state;
	const struct shape shapes[] = {
		{key_of(F16, 2, 1000, 2, 1, 64), 0},    /* no whole blocks */
		{key_of(F16, 2, 2048, 8, 4, 128), 8},   /* grouped heads: a sample a call */
		{key_of(BF16, 2, 2048, 1, 8, 128), 0},  /* one group: all at once */
		{key_of(F16, 4, 2048, 16, 1, 128), 0},  /* 1.3B: the gradient of its scores is 512 MiB */
		{key_of(F16, 4, 2048, 40, 1, 128), 40}, /* 13B: 1.3 GiB */
		{key_of(BF16, 1, 4096, 32, 1, 128), 16},
		{key_of(BF16, 1, 8192, 8, 4, 64), 1},   /* one group needs more than is usual */
		{key_of(BF16, 1, 8192, 2, 8, 64), 1},
	};
	struct described d;
	describe(&d, 90);
	for (int i = 0; i < 4; i++)
		both(&d, &(struct shape){key_of(i % 2 ? BF16 : F16, 2, 1024, 12, 1, sizes[i]), 0});
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		both(&d, &shapes[i]);
	cudnn_parts_give_back(&d.parts, 0);
}

/* Its deterministic backward keeps no scores' gradient, but for grouped heads. */
static void blackwell(void **state)
{
	(void)state;
	struct described d;
	describe(&d, 100);
	for (int i = 0; i < 4; i++)
		both(&d, &(struct shape){key_of(i % 2 ? BF16 : F16, 1, 8192, 16, 1, sizes[i]), 0});
	both(&d, &(struct shape){key_of(BF16, 1, 2048, 8, 4, 128), 8});
	cudnn_parts_give_back(&d.parts, 0);
}

/* No engine computes this: an answer, not an end. */
static void what_there_is_not(void **state)
{
	(void)state;
	struct described d;
	struct cudnn_plan p;
	struct attention_key huge = key_of(F16, 1, 32768, 1, 1, 128);
	describe(&d, 90);
	assert_false(cudnn_plan_open(&p, &d.target, &huge, true, taken(&huge)));
	assert_int_equal(p.parts.count, 0);
	cudnn_parts_give_back(&d.parts, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(graphs_are_finished), cmocka_unit_test(hopper), cmocka_unit_test(blackwell),
		cmocka_unit_test(what_there_is_not),
	};
	return cmocka_run_group_tests_name("cudnn plans", tests, NULL, NULL);
}

/* The planner on ideal hardware, where a step's seconds have formulas: products alone take time, then one thing more at a
 * time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "machine.h"
#include "plan/plan.h"

static const char settings[] =
	"[model]\nlayers = 16\nhidden = 1024\nheads = 8\nsequence = 512\nvocab = 128\ntied = false\n"
	"[batch]\nglobal = 16\nmicro = 1\n";

/* 1 TFLOP/s, and everything else for nothing. */
static const char ideal[] =
	"[hardware]\nname = ideal\n"
	"[device]\npeak_fp16_tflops = 1\npeak_bf16_tflops = 0\npeak_fp32_tflops = 1\nmemory_gib = 80\nmemory_gbps = 1e12\n"
	"gemm_efficiency = 1\ngemm_depth = 0\nattention_forward = 1\nattention_backward = 1\nattention_length = 0\n"
	"memory_efficiency = 1\nkernel_us = 0\nlaunch_us = 0\ncontext_gib = 0\nlibrary_gib = 0\ngroup_gib = 0\noverlap_slowdown = 1\n"
	"[node]\nlink_gbps = 1e9\nlink_latency_us = 0\nlink_efficiency = 1\nlink_floor_us = 0\nlink_half_mb = 0\nlink_pair = 1\n"
	"[network]\nlink_gbps = 1e9\nlink_latency_us = 0\nlink_efficiency = 1\nlink_floor_us = 0\nlink_half_mb = 0\nlink_pair = 1\n";

struct rig {
	struct config config;
	struct hardware hardware;
	struct stack stack;
	struct plan plan;
};

static bool make(struct rig *r, const char *more, const char *const *sets, int count, int64_t devices, struct error *e)
{
	*r = (struct rig){0};
	bool good = machine_load(&r->hardware, ideal, more, e) && stack_load(&r->stack, "mtrain", e);
	if (!good || !config_parse(&r->config, "plan.ini", settings, sizeof settings - 1, sets, count, e))
		fail_msg("%s", e->text);
	return plan_make(&r->plan, &(struct plan_options){
		.config = &r->config, .hardware = &r->hardware, .stack = &r->stack, .devices = devices,
	}, e);
}

static void finish(struct rig *r)
{
	plan_finish(&r->plan);
	config_finish(&r->config);
}

#define SETS(...) (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

static void plan_of(struct rig *r, const char *more, const char *const *sets, int count, int64_t devices)
{
	struct error e = {0};
	if (!make(r, more, sets, count, devices, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < r->plan.stages; i++) {
		double sum = 0;
		for (int c = 0; c < CAUSES; c++)
			sum += r->plan.stage[i].time.seconds[c];
		assert_true(fabs(sum / r->plan.step_seconds - 1) < 1e-9);
	}
}

static void near(double have, double want, double tolerance, const char *what)
{
	if (!(fabs(have / want - 1) <= tolerance))
		fail_msg("%s: %.6g, should be %.6g", what, have, want);
}

static void one_device_takes_its_flops(void **state)
{
	struct rig r;
	plan_of(&r, "", NULL, 0, 1);
	near(r.plan.step_seconds, r.plan.stage[0].ledger.flops / 1e12, 1e-6, "a step");
	near(r.plan.mfu * r.plan.step_seconds, run_step_flops(&r.config) / 1e12, 1e-9, "mfu");
	finish(&r);
}

/* p stages, m micro-batches: 1F1B stands idle for (p − 1)/m of its work, interleaved for (p − 1)/(v·m), zero-bubble for less
 * than half of the first. The small head and first stage make no stage equal to another: 2%. */
static void bubbles(void **state)
{
	struct rig r;
	plan_of(&r, "", SETS("parallel.pipeline=4"), 0);
	double busy = r.plan.step_seconds - r.plan.seconds[CAUSE_BUBBLE], first = r.plan.seconds[CAUSE_BUBBLE] / busy;
	near(first, 3.0 / 16, 0.02, "bubble of 1F1B");
	finish(&r);
	plan_of(&r, "", SETS("parallel.pipeline=4", "parallel.schedule=interleaved", "parallel.chunks=2"), 0);
	busy = r.plan.step_seconds - r.plan.seconds[CAUSE_BUBBLE];
	near(r.plan.seconds[CAUSE_BUBBLE] / busy, 3.0 / 32, 0.04, "bubble of interleaved");
	finish(&r);
	plan_of(&r, "", SETS("parallel.pipeline=4", "parallel.schedule=zero-bubble"), 0);
	busy = r.plan.step_seconds - r.plan.seconds[CAUSE_BUBBLE];
	assert_true(r.plan.seconds[CAUSE_BUBBLE] / busy < first / 2);
	finish(&r);
}

/* With 1 GB/s inside a node and no overlap, tensor parallelism adds its collectives' bytes: 4 reductions of [s, h] a layer
 * and micro-batch, a ring's 2(n − 1)/n, and the head's and the embedding's. */
static void tensor_time_is_bytes(void **state)
{
	struct rig r;
	plan_of(&r, "[node]\nlink_gbps = 1\n", SETS("parallel.tensor=2", "parallel.sequence=false", "parallel.overlap=false"), 0);
	double bytes = 16 * (4 * 16 + 2) * 512.0 * 1024 * 2;
	near(r.plan.seconds[CAUSE_TENSOR], bytes / 1e9, 0.01, "tensor seconds");
	finish(&r);
}

/* Data ranks on different nodes: 2(d − 1)/d of 4 bytes a parameter through one NIC each; beside backward some of it hides. */
static void data_time_is_bytes(void **state)
{
	struct rig r;
	const char *slow = "[network]\nlink_gbps = 10\nnics_per_node = 1\n[node]\ndevices_per_node = 1\n";
	plan_of(&r, slow, SETS("parallel.data=4", "parallel.overlap=false"), 0);
	double bytes = 0, apart = r.plan.step_seconds;
	for (int k = 0; k < COMM_CALLS; k++)
		bytes += (double)ledger_find(&r.plan.stage[0].ledger, "data")->count.bytes[k] * (k == COMM_ALL_REDUCE ? 2 : 1);
	near(r.plan.seconds[CAUSE_DATA], bytes * 3 / 4 / 10e9, 0.01, "data seconds");
	finish(&r);
	plan_of(&r, slow, SETS("parallel.data=4", "parallel.overlap=true"), 0);
	assert_true(r.plan.step_seconds < apart);
	finish(&r);
}

/* Seconds of an all-reduce of 1 GB in a group: inside a node for nothing, between nodes of 8 with 1 GB/s for each device. */
static double sum_of(const struct hardware *h, const struct stack *s, const int size[AXES], const char *group, int ranks)
{
	struct mesh mesh = {0};
	memcpy(mesh.size, size, sizeof mesh.size);
	struct timing t = {.hardware = h, .stack = s, .mesh = &mesh};
	struct record_item item = {.kind = RECORD_COMM, .what = COMM_ALL_REDUCE, .dtype = F16, .cost = {.bytes = 1e9},
				   .group = group, .ranks = ranks};
	return timing_item(&t, &item);
}

/* What crosses a node's end in one of the groups crosses it for all: they wait for that one. */
static void groups_lie_in_nodes(void **state)
{
	static const struct {
		int size[AXES]; /* tensor, context, data, pipeline */
		const char *group;
		int ranks;
		double seconds;
	} cases[] = {
		{{4, 1, 4, 1}, "tensor", 4, 0},
		{{3, 1, 2, 1}, "tensor", 3, 0},          /* one node in all */
		{{3, 1, 8, 1}, "tensor", 3, 4.0 / 3},    /* 6, 7 | 8 */
		{{6, 1, 4, 1}, "tensor", 6, 5.0 / 3 / 2}, /* 6, 7 | 8, 9, 10, 11 */
		{{2, 1, 2, 4}, "data", 2, 0},
		{{2, 1, 3, 4}, "data", 3, 4.0 / 3},       /* 6 | 8, 10 */
		{{1, 1, 12, 2}, "data", 12, 11.0 / 6 / 4}, /* 0 to 7 | 8 to 11 */
		{{2, 2, 3, 4}, "data", 6, 5.0 / 3 / 2},   /* 0, 2, 4, 6 | 8, 10 */
		{{1, 1, 16, 1}, "data", 16, 15.0 / 8 / 8},
		{{1, 1, 1, 8}, "embedding", 2, 0},
		{{1, 1, 1, 16}, "embedding", 2, 1}, /* 0 and 15 */
		{{2, 1, 1, 8}, "embedding", 2, 1},  /* 0 and 14 */
		{{2, 1, 1, 4}, "embedding", 2, 0},
		{{2, 1, 2, 2}, "embedding", 2, 0},
		{{8, 1, 2, 2}, "embedding", 2, 1},
	};
	struct hardware h;
	struct stack s;
	struct error e = {0};
	const char *slow = "[network]\nlink_gbps = 1\n";
	assert_true(machine_load(&h, ideal, slow, &e) && stack_load(&s, "mtrain", &e));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		double seconds = sum_of(&h, &s, cases[i].size, cases[i].group, cases[i].ranks);
		if (fabs(seconds - cases[i].seconds) > 1e-6)
			fail_msg("case %zu: %.6g s, should be %.6g", i, seconds, cases[i].seconds);
	}
	/* Stages of 3 ranks, of which the third begins with the last two places of a node. */
	struct mesh mesh = {.size = {3, 1, 1, 4}};
	struct timing t = {.hardware = &h, .stack = &s, .mesh = &mesh};
	static const double seconds[3] = {0, 1, 1};
	for (int i = 0; i < 3; i++) {
		assert_true(fabs(timing_transfer(&t, i, i + 1, 1e9) - seconds[i]) < 1e-6);
		assert_true(timing_transfer(&t, i + 1, i, 1e9) == timing_transfer(&t, i, i + 1, 1e9));
	}
}

static void launches_hold_small_steps_up(void **state)
{
	struct rig r;
	plan_of(&r, "[device]\nlaunch_us = 1000\n", NULL, 0, 1);
	int64_t calls = 0;
	for (int i = 0; i < OP_COUNT; i++)
		calls += r.plan.stage[0].ledger.op[i].calls;
	assert_true(r.plan.step_seconds > (double)calls * 1e-3);
	finish(&r);
}

static void memory_is_that_of_the_arenas(void **state)
{
	struct rig r;
	plan_of(&r, "[device]\ncontext_gib = 1\ngroup_gib = 0.5\n", SETS("parallel.pipeline=2", "parallel.data=2"), 0);
	for (int i = 0; i < 2; i++) {
		const struct plan_stage *s = &r.plan.stage[i];
		int64_t sum = 0;
		for (int k = 0; k < MEMORY_KINDS; k++)
			sum += s->ledger.arena[k];
		/* driver; data, pipeline and world; products */
		assert_int_equal(s->overhead, (1LL << 30) + 3 * (1LL << 29));
		assert_int_equal(s->ledger.workspace, 64 << 20);
		assert_int_equal(s->total - sum, s->overhead + s->ledger.workspace);
		assert_int_equal(s->layers, 8);
	}
	assert_true(r.plan.fits);
	finish(&r);
	plan_of(&r, "[device]\nmemory_gib = 1\n", NULL, 0, 1);
	assert_false(r.plan.fits);
	finish(&r);
}

/* cuDNN's attention, where it may compute: 2.5 bytes a pair of tokens and head of a micro-batch and 16 MiB, to 528 MiB or one KV
 * group's, to 1296 MiB. */
static void workspace_of_cudnn_is_counted(void **state)
{
	static const struct {
		const char *sets[3];
		int64_t mib;
	} cases[] = {
		{{"model.sequence=512"}, 64}, /* less than products take */
		{{"model.sequence=2048"}, 80 + 16},
		{{"model.sequence=4096"}, 320 + 16},
		{{"model.sequence=4096", "parallel.tensor=2"}, 160 + 16},
		{{"model.sequence=2048", "batch.micro=4"}, 320 + 16},
		{{"model.sequence=4096", "batch.micro=4"}, 528},
		{{"model.sequence=16384"}, 640 + 16}, /* of one of eight groups */
		{{"model.sequence=8192", "model.kv_heads=1"}, 1296},
		{{"model.sequence=4096", "precision.compute=fp32"}, 64},
		{{"model.sequence=4096", "model.attention_dropout=0.1"}, 64},
		{{"model.sequence=4096", "model.position=alibi"}, 64},
		{{"model.sequence=4096", "parallel.context=2"}, 64},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rig with, without;
		int count = 0;
		while (count < 3 && cases[i].sets[count])
			count++;
		plan_of(&with, "[device]\ncudnn_attention = 1\n", cases[i].sets, count, 0);
		plan_of(&without, "", cases[i].sets, count, 0);
		const struct plan_stage *s = &with.plan.stage[0];
		assert_int_equal(s->ledger.workspace, cases[i].mib << 20);
		assert_int_equal(s->without_cudnn, 64 << 20);
		assert_int_equal(without.plan.stage[0].ledger.workspace, 64 << 20);
		assert_int_equal(s->total - without.plan.stage[0].total, s->ledger.workspace - s->without_cudnn);
		finish(&with);
		finish(&without);
	}
}

/* recompute = auto leaves room for the workspace, a card's and the CPU's. */
static void what_is_kept_leaves_room_for_the_workspace(void **state)
{
	static const char *const devices[] = {"[device]\ncudnn_attention = 1\nmemory_gib = 4.5\n", "[device]\nmemory_gib = 4.5\n",
					      "backend = cpu\n[device]\nmemory_gib = 4.5\n"};
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		struct rig r;
		plan_of(&r, devices[i], SETS("model.sequence=4096", "parallel.recompute=auto"), 1);
		const struct plan_stage *s = &r.plan.stage[0];
		assert_true(r.plan.fits && s->ledger.workspace > 0 && s->ledger.again > 0);
		assert_true(s->total + s->ledger.workspace > r.plan.memory_limit); /* it is full but for a tensor */
		finish(&r);
	}
}

static void bad_input_is_explained(void **state)
{
	struct rig r;
	struct error e = {0};
	assert_false(make(&r, "", SETS("parallel.tensor=4"), 6, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_non_null(strstr(e.text, "6 devices cannot be divided into parallel.tensor*context*pipeline = 4: 4 or 8 devices would do"));
	finish(&r);
	assert_false(make(&r, "", SETS("precision.compute=bf16"), 1, &e));
	assert_non_null(strstr(e.text, "ideal has no bf16"));
	finish(&r);
	struct hardware h;
	assert_false(hardware_load(&h, "a100-80g", &e));
	assert_non_null(strstr(e.text, "did you mean a100-80gb?"));
	struct stack s;
	assert_false(stack_load(&s, "mtrian", &e));
	assert_non_null(strstr(e.text, "did you mean mtrain?"));
}

/* What is written comes back. */
static void hardware_files_come_back(void **state)
{
	struct hardware *a = malloc(sizeof *a), *b = malloc(sizeof *b);
	char path[] = "/tmp/mtrain-plan-XXXXXX";
	struct error e = {0};
	FILE *f = fdopen(mkstemp(path), "w");
	assert_true(a && b && f);
	if (!hardware_load(a, "selene", &e))
		fail_msg("%s", e.text);
	a->gemm[2] = (struct hardware_curve){2, {1e6, 1e9}, {0.5, 2}};
	hardware_write(a, f);
	fclose(f);
	if (!hardware_load(b, path, &e))
		fail_msg("%s", e.text);
	unlink(path);
	assert_string_equal(b->name, "selene");
	assert_true(b->network.gbps.value == a->network.gbps.value && b->network.gbps.mark == MARK_DATASHEET);
	near(hardware_rate(&b->gemm[2], sqrt(1e15)), 1, 1e-9, "half way between points");
	near(hardware_rate(&b->gemm[2], 1), 0.5, 1e-9, "before the first point");
	free(a);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_device_takes_its_flops), cmocka_unit_test(bubbles),
		cmocka_unit_test(tensor_time_is_bytes),       cmocka_unit_test(data_time_is_bytes),
		cmocka_unit_test(groups_lie_in_nodes),
		cmocka_unit_test(launches_hold_small_steps_up), cmocka_unit_test(memory_is_that_of_the_arenas),
		cmocka_unit_test(workspace_of_cudnn_is_counted),
		cmocka_unit_test(what_is_kept_leaves_room_for_the_workspace),
		cmocka_unit_test(bad_input_is_explained),     cmocka_unit_test(hardware_files_come_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

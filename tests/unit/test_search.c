/* The search for layouts against every layout that there is, in small cases. */
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
#include "plan/search.h"

/* Four devices a node. */
static const char machine[] =
	"[hardware]\nname = small\n"
	"[device]\npeak_fp16_tflops = 1\npeak_bf16_tflops = 0\npeak_fp32_tflops = 1\nmemory_gbps = 1000\n"
	"gemm_efficiency = 1\ngemm_depth = 0\nattention_forward = 1\nattention_backward = 1\nattention_length = 0\n"
	"memory_efficiency = 1\nkernel_us = 0\nlaunch_us = 0\ncontext_gib = 0\nlibrary_gib = 0\ngroup_gib = 0\noverlap_slowdown = 1\n"
	"[node]\ndevices_per_node = 4\nlink_gbps = 100\nlink_efficiency = 1\nlink_floor_us = 0\nlink_half_mb = 0\nlink_pair = 1\n"
	"[network]\nnics_per_node = 4\nlink_efficiency = 1\nlink_floor_us = 0\nlink_half_mb = 0\nlink_pair = 1\n";

struct rig {
	struct config config;
	struct hardware hardware;
	struct stack stack;
	struct plan_options options;
	struct search search;
};

static void open_rig(struct rig *r, const char *settings, const char *more, int64_t devices)
{
	struct error e = {0};
	*r = (struct rig){0};
	bool good = machine_load(&r->hardware, machine, more, &e) && stack_load(&r->stack, "mtrain", &e) &&
		    config_parse(&r->config, "plan.ini", settings, strlen(settings), NULL, 0, &e);
	if (!good)
		fail_msg("%s", e.text);
	r->options = (struct plan_options){.config = &r->config, .hardware = &r->hardware, .stack = &r->stack, .devices = devices};
}

static void run_search(struct rig *r)
{
	struct error e = {0};
	if (!search_make(&r->search, &r->options, &e))
		fail_msg("%s", e.text);
}

static void close_rig(struct rig *r)
{
	search_finish(&r->search);
	config_finish(&r->config);
}

/* Whether any mesh of the devices, planned in full, fits with full recompute and a micro-batch of one. */
static bool any_fits(struct rig *r, int64_t devices, int64_t sequence)
{
	struct config *c = &r->config;
	int64_t before = c->model.sequence;
	bool found = false;
	c->model.sequence = sequence;
	for (int64_t tensor = 1; tensor <= 4; tensor++)
		for (int64_t context = 1; context == 1 || sequence / context >= 4096; context *= 2)
			for (int64_t pipeline = 1; pipeline <= c->model.layers && !found; pipeline++)
				for (int kind = 0; kind < 2 * 8 && !found; kind++) {
					struct parallel_settings *p = &c->parallel;
					struct plan plan;
					struct error e = {0};
					int sharded = kind % 2, chunks = kind / 2 + 1;
					if (devices % (tensor * context * pipeline) != 0)
						continue;
					if (chunks > 1 && (pipeline == 1 || c->model.layers % (chunks * pipeline) != 0))
						continue;
					p->tensor = tensor, p->context = context, p->pipeline = pipeline;
					p->data = devices / (tensor * context * pipeline);
					p->recompute = RECOMPUTE_FULL, p->shard_optimizer = sharded;
					p->schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B, p->chunks = chunks, c->batch.micro = 1;
					struct plan_options o = r->options;
					o.devices = devices;
					if (!plan_make(&plan, &o, &e))
						continue;
					found = plan.fits;
					plan_finish(&plan);
				}
	c->model.sequence = before;
	return found;
}

static void fewest_is_that_of_all_meshes(void **state)
{
	static const struct {
		const char *settings, *memory;
	} cases[] = {
		{"[model]\nlayers = 7\nhidden = 512\nheads = 4\nsequence = 512\nvocab = 4096\n[batch]\nglobal = 12\n", "memory_gib = 0.4125\n"},
		{"[model]\nlayers = 7\nhidden = 512\nheads = 4\nsequence = 512\nvocab = 4096\n[batch]\nglobal = 12\n", "memory_gib = 0.1725\n"},
		{"[model]\nlayers = 6\nhidden = 384\nheads = 6\nsequence = 1024\nvocab = 30000\n[batch]\nglobal = 6\n", "memory_gib = 0.2625\n"},
		{"[model]\nlayers = 12\nhidden = 512\nheads = 8\nkv_heads = 2\nsequence = 512\nvocab = 512\n[batch]\nglobal = 5\n", "memory_gib = 0.1825\n"},
		{"[model]\nlayers = 3\nhidden = 1024\nheads = 16\nsequence = 256\nvocab = 50000\ntied = false\n[batch]\nglobal = 8\n", "memory_gib = 0.5625\n"},
		{"[model]\nlayers = 7\nhidden = 512\nheads = 4\nsequence = 512\nvocab = 4096\n[batch]\nglobal = 12\n", "memory_gib = 0.3625\ngroup_gib = 0.03\n"},
		{"[model]\nlayers = 12\nhidden = 512\nheads = 8\nsequence = 512\nvocab = 512\ntied = false\n[batch]\nglobal = 8\n",
		 "memory_gib = 0.4125\ngroup_gib = 0.05\n"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rig r;
		char more[64];
		snprintf(more, sizeof more, "[device]\n%s", cases[i].memory);
		open_rig(&r, cases[i].settings, more, 24);
		struct error e = {0};
		if (!search_make(&r.search, &r.options, &e) && !strstr(e.text, "the fewest on which one does are"))
			fail_msg("case %zu: %s", i, e.text);
		int64_t n = 1;
		while (n <= 64 && !any_fits(&r, n, r.config.model.sequence))
			n = n < 4 ? n + 1 : n + 4;
		if (r.search.fewest != n)
			fail_msg("case %zu: the search has %lld devices, all meshes %lld", i, (long long)r.search.fewest, (long long)n);
		close_rig(&r);
	}
}

/* No mesh fits a sequence that is longer by less than a quarter, and one fits the longest. */
static void longest_is_that_of_all_meshes(void **state)
{
	static const struct {
		const char *settings, *memory;
	} cases[] = {
		{"layers = 4\nhidden = 256\nheads = 4\nsequence = 1024", "memory_gib = 0.1425\n"},
		{"layers = 5\nhidden = 192\nheads = 3\nsequence = 2048", "memory_gib = 0.1425\n"},
		{"layers = 2\nhidden = 256\nheads = 8\nsequence = 512\nposition = rope", "memory_gib = 0.1425\n"},
		{"layers = 4\nhidden = 256\nheads = 4\nsequence = 1024", "memory_gib = 0.2225\ngroup_gib = 0.02\n"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rig r;
		char settings[256];
		snprintf(settings, sizeof settings, "[model]\n%s\nvocab = 1024\n[batch]\nglobal = 4\n", cases[i].settings);
		char more[64];
		snprintf(more, sizeof more, "[device]\n%s", cases[i].memory);
		open_rig(&r, settings, more, 8);
		run_search(&r);
		int64_t unit = r.config.model.sequence < 1024 ? r.config.model.sequence : 1024, longest = r.search.longest;
		assert_true(longest > 0 && longest % unit == 0);
		if (!any_fits(&r, 8, longest))
			fail_msg("case %zu: no mesh fits %lld tokens", i, (long long)longest);
		for (int64_t sequence = longest + unit; sequence < longest * 5 / 4; sequence += unit)
			if (any_fits(&r, 8, sequence))
				fail_msg("case %zu: the search has %lld tokens, a mesh %lld", i, (long long)longest, (long long)sequence);
		close_rig(&r);
	}
}

/* The search refuses where no mesh fits, with the reason, and only there; the fewest are not those on which none does. */
static void refuses_where_no_mesh_fits(void **state)
{
	int refused = 0, found = 0;
	for (double memory = 0.2625; memory < 0.5625; memory += 0.02) {
		struct rig r;
		struct error e = {0};
		char more[64];
		snprintf(more, sizeof more, "[device]\nmemory_gib = %g\ngroup_gib = 0.05\n", memory);
		open_rig(&r, "[model]\nlayers = 6\nhidden = 512\nheads = 4\nsequence = 512\nvocab = 4096\n[batch]\nglobal = 12\n", more, 8);
		bool good = search_make(&r.search, &r.options, &e);
		if (good != any_fits(&r, 8, 512))
			fail_msg("%g GiB: %s", memory, good ? "no mesh fits" : e.text);
		if (good ? r.search.fewest < 1 || r.search.fewest > 8 : r.search.fewest == 8)
			fail_msg("%g GiB: the fewest are %lld, %s", memory, (long long)r.search.fewest, e.text);
		assert_true(!good || r.search.longest >= 512);
		assert_true(good || strstr(e.text, "the nearest with full recompute needs "));
		refused += !good;
		found += good;
		close_rig(&r);
	}
	assert_true(refused > 0 && found > 0);
}

/* The search's first is no slower than any layout that was planned in full, those that fit fit, and what is out says why. */
static void ranks(void **state)
{
	struct rig r;
	struct error e = {0};
	open_rig(&r, "[model]\nlayers = 16\nhidden = 1024\nheads = 8\nsequence = 512\nvocab = 128\ntied = false\n[batch]\nglobal = 64\n",
		 "[device]\nmemory_gib = 2\ncontext_gib = 0.1\n[network]\nlink_gbps = 5\n", 8);
	run_search(&r);
	const struct search *s = &r.search;
	int beaten = 0;
	assert_true(s->ranked > 3 && s->ranked <= s->count);
	for (int i = 0; i < s->count; i++) {
		const struct search_layout *l = &s->list[i];
		assert_int_equal(l->data * l->context * l->tensor * l->pipeline, 8);
		if (i < s->ranked) {
			assert_true(l->seconds >= 0.99 * s->list[0].seconds && l->memory <= (int64_t)2 << 30 && !*l->reason);
			if (fabs(l->sketch / l->seconds - 1) > 0.1)
				fail_msg("%lld x %lld x %lld: sketched %.4g s, planned %.4g s", (long long)l->data, (long long)l->tensor,
					 (long long)l->pipeline, l->sketch, l->seconds);
		}
		assert_true((l->sketch > 0 && !l->beaten) == (*l->reason == '\0'));
		/* a whole optimizer that is no faster: it fits nevertheless */
		assert_true(!l->beaten || (!l->sharded && l->sketch > 0 && l->memory <= (int64_t)2 << 30));
		beaten += l->beaten;
	}
	assert_true(beaten > 0);
	/* 18 bytes a parameter do not fit on one device of 2 GiB, and do on two: 200 M parameters. */
	assert_int_equal(s->fewest, 2);
	search_finish(&r.search);
	r.config.batch.global = 63;
	r.options.devices = 1021;
	assert_false(search_make(&r.search, &r.options, &e));
	assert_non_null(strstr(e.text, "no layout"));
	close_rig(&r);
}

/* With fewer micro-batches than stages, and most time in what is done once a step. */
static void few_micros_are_sketched(void **state)
{
	struct rig r;
	open_rig(&r, "[model]\nlayers = 16\nhidden = 512\nheads = 8\nsequence = 512\nvocab = 8192\n[batch]\nglobal = 2\n",
		 "[device]\nmemory_gib = 16\n[network]\nlink_gbps = 2\n", 32);
	run_search(&r);
	int fewer = 0;
	for (int i = 0; i < r.search.ranked; i++) {
		const struct search_layout *l = &r.search.list[i];
		fewer += 2 / (l->data * l->micro) < l->pipeline;
		if (fabs(l->sketch / l->seconds - 1) > 0.1)
			fail_msg("%lld x %lld x %lld x %lld: sketched %.4g s, planned %.4g s", (long long)l->data, (long long)l->tensor,
				 (long long)l->pipeline, (long long)l->chunks, l->sketch, l->seconds);
	}
	assert_true(fewer > 3);
	close_rig(&r);
}

/* Micro-batches of every size that divides, not of powers of two alone: three samples at once where each op costs its launch. */
static void micro_batches_of_any_size(void **state)
{
	struct rig r;
	open_rig(&r, "[model]\nlayers = 4\nhidden = 256\nheads = 4\nsequence = 512\nvocab = 512\n[batch]\nglobal = 12\n",
		 "[device]\nmemory_gib = 16\nkernel_us = 1000\n", 4);
	run_search(&r);
	assert_int_equal(r.search.list[0].data, 4);
	assert_int_equal(r.search.list[0].micro, 3);
	for (int i = 0; i < r.search.count; i++)
		assert_int_equal(12 % (r.search.list[i].data * r.search.list[i].micro), 0);
	close_rig(&r);
}

/* Chunks of interleaved stages need not all have as many layers: 11 are not divisible by any number of them. */
static void chunks_need_not_divide_the_layers(void **state)
{
	struct rig r;
	open_rig(&r, "[model]\nlayers = 11\nhidden = 1024\nheads = 8\nsequence = 512\nvocab = 8192\nffn = 4097\n[batch]\nglobal = 4\n",
		 "[device]\nmemory_gib = 16\n", 2);
	run_search(&r);
	int uneven = 0;
	for (int i = 0; i < r.search.ranked; i++)
		uneven += r.search.list[i].chunks > 1;
	assert_true(uneven > 0);
	close_rig(&r);
}

/* Each mesh with several data ranks is looked at with both optimizers. What is out because of a sharded one's memory does not fit
 * whole either. */
static void both_optimizers_are_looked_at(void **state)
{
	struct rig r;
	open_rig(&r, "[model]\nlayers = 4\nhidden = 512\nheads = 4\nsequence = 512\nvocab = 512\n[batch]\nglobal = 16\n",
		 "[device]\nmemory_gib = 0.2625\n", 8);
	run_search(&r);
	int count[2] = {0};
	for (int i = 0; i < r.search.count; i++) {
		const struct search_layout *l = &r.search.list[i];
		assert_true(l->data * l->context > 1 || !l->sharded);
		if (l->data * l->context > 1)
			count[l->sharded]++;
		if (i < r.search.ranked && l->data > 1)
			assert_true(l->sharded); /* links without latency: never slower, and smaller */
	}
	assert_true(count[0] > 0 && count[0] == count[1]);
	close_rig(&r);
	/* A collective that takes long however small it is: one sum is faster than a sum of parts and a gather. */
	open_rig(&r, "[model]\nlayers = 4\nhidden = 256\nheads = 4\nsequence = 512\nvocab = 512\n[batch]\nglobal = 16\n",
		 "[device]\nmemory_gib = 16\n[node]\nlink_floor_us = 5000\n[network]\nlink_floor_us = 5000\n", 8);
	run_search(&r);
	const struct search_layout *best = &r.search.list[0];
	assert_int_equal(best->data, 8);
	assert_false(best->sharded);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fewest_is_that_of_all_meshes), cmocka_unit_test(longest_is_that_of_all_meshes),
		cmocka_unit_test(refuses_where_no_mesh_fits), cmocka_unit_test(ranks),
		cmocka_unit_test(few_micros_are_sketched), cmocka_unit_test(micro_batches_of_any_size),
		cmocka_unit_test(chunks_need_not_divide_the_layers),
		cmocka_unit_test(both_optimizers_are_looked_at),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is computed again: the same gradients in the same bits whatever set of tensors is kept; bytes in the arenas as in
 * docs/activation-memory.md; the choice that fits a memory against all choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "dev/cpu/cpu.h"
#include "model/gpt.h"
#include "model/recompute.h"
#include "train/batch.h"

struct rig {
	struct device *dev;
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	struct tensor totals, d;
};

static const struct model_settings small = {
	.layers = 2, .hidden = 24, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 40, .sequence = 9, .vocab = 31,
	.norm = NORM_LAYER, .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .bias = true, .qkv_bias = true,
	.dropout = 0.2, .attention_dropout = 0.1,
};
enum { SLOTS = 2, POSITIONS = 2, SETS = 1 << (BLOCK_TENSORS - 1) };

static void build(struct rig *r, const struct model_settings *m, enum dtype dtype, struct device *dev, const unsigned *kept)
{
	param_table_init(&r->params, m, dtype, 1, 0);
	gpt_build(&r->gpt, &(struct gpt_options){
		.model = m, .params = &r->params, .dev = dev, .tensor_size = 1, .stages = 1, .chunks = 1, .layers_of = &m->layers,
		.batch = 2, .seed = 7, .kept = kept, .slots = SLOTS, .inputs = SLOTS, .waits = SLOTS,
	}, &r->memory);
	r->d = env_rows(&r->gpt.env, &r->memory, MEMORY_COMMUNICATION, m->hidden);
	r->totals = arena_1d(&r->memory.arena[MEMORY_COMMUNICATION], F64, 2);
}

static void take_apart(struct rig *r)
{
	gpt_finish(&r->gpt);
	param_table_finish(&r->params);
}

static void fill(struct rig *r, const struct model_settings *m)
{
	int32_t room[64];
	dev_scalars(r->dev)->loss_scale = 64;
	for (int i = 0; i < r->params.count; i++) {
		struct tensor w = r->params.params[i].weight;
		for (int64_t j = 0; j < tensor_count(w); j++) {
			double four[4];
			rng_normal(5, (uint32_t)i, (uint64_t)j, four);
			float x = (float)(r->params.params[i].fill + 0.3 * four[0]);
			if (w.dtype == F16)
				((uint16_t *)w.data)[j] = fp16_from_float(x);
			else
				((float *)w.data)[j] = x;
		}
	}
	for (int slot = 0; slot < SLOTS; slot++) {
		struct gpt_slot *s = &r->gpt.slots[slot];
		int32_t *tokens = s->tokens.data, *targets = s->targets.data;
		for (int64_t i = 0; i < r->gpt.env.tokens; i++) {
			struct philox w = philox(9, (struct philox){{(uint32_t)i, (uint32_t)slot, 0, 0}});
			tokens[i] = (int32_t)(w.word[0] % (uint32_t)m->vocab);
			targets[i] = (int32_t)(w.word[1] % (uint32_t)m->vocab);
		}
		batch_sort(s->order.data, tokens, r->gpt.env.tokens, room);
		s->pass = (struct pass){.sample = 2 * slot, .training = true};
	}
}

/* The gradients of two micro-batches, between whose forward and backward all that may be lost is lost. apart: the weight
 * parts come behind both input parts. The caller frees them. */
static void *gradients(const struct model_settings *m, enum dtype dtype, const unsigned *kept, bool apart, size_t *bytes)
{
	struct rig r = {0};
	struct error e;
	assert_true(dev_open(&r.dev, &backend_cpu, &(struct dev_options){.threads = 1}, &e));
	memory_measure(&r.memory);
	build(&r, m, dtype, NULL, kept);
	struct dev_limits limits = gpt_limits(&r.gpt);
	take_apart(&r);
	assert_true(dev_reserve(r.dev, &limits, &e) && memory_open(&r.memory, r.dev, &e));
	build(&r, m, dtype, r.dev, kept);
	fill(&r, m);
	const struct arena *scratch = &r.memory.arena[MEMORY_SCRATCH];
	for (int slot = 0; slot < SLOTS; slot++) {
		gpt_forward(&r.gpt, slot, (struct tensor){0}, r.totals, r.d);
		dev_finish(r.dev, dev_mark(r.dev, Q_COMPUTE));
		if (!apart || slot == 0) /* later a slot that waits has some of it in exchange */
			memset(scratch->base, 0xff, scratch->used);
		gpt_backward(&r.gpt, slot, apart ? BACKWARD_INPUT : BACKWARD_BOTH, r.d);
	}
	for (int slot = 0; apart && slot < SLOTS; slot++)
		gpt_backward(&r.gpt, slot, BACKWARD_WEIGHT, (struct tensor){0});
	dev_finish(r.dev, dev_mark(r.dev, Q_COMPUTE));
	struct tensor all = memory_whole(&r.memory, MEMORY_GRADIENTS, F32);
	*bytes = tensor_bytes(all);
	char *copy = malloc(*bytes);
	assert_non_null(copy);
	memcpy(copy, all.data, *bytes);
	take_apart(&r);
	memory_close(&r.memory);
	dev_close(r.dev);
	return copy;
}

static void test_bits(void **state)
{
	static const enum activation activations[] = {ACTIVATION_GELU, ACTIVATION_GELU_ERF, ACTIVATION_SWIGLU};
	for (int kind = 0; kind < 3; kind++)
		for (enum dtype dtype = F32; dtype <= F16; dtype += F16 - F32) {
			struct model_settings m = small;
			bool rms = kind > 0;
			m.norm = rms ? NORM_RMS : NORM_LAYER;
			m.activation = activations[kind];
			m.position = kind == 2 ? POSITION_ROPE : kind == 1 ? POSITION_ALIBI : POSITION_LEARNED;
			m.rope_base = 100;
			m.rotary_fraction = 1;
			m.bias = !rms;
			size_t bytes, again_bytes;
			char *want = gradients(&m, dtype, NULL, false, &bytes);
			for (unsigned set = 0; set < SETS; set++) {
				unsigned kept[POSITIONS] = {1u | set << 1, 1u | (SETS - 1 - set) << 1};
				char *got = gradients(&m, dtype, kept, (set + (unsigned)kind) % 2, &again_bytes);
				assert_int_equal(bytes, again_bytes);
				if (memcmp(want, got, bytes) != 0)
					fail_msg("%s, activation %d, %s: keeping 0x%x and 0x%x gives other gradients", dtype_name(dtype),
						 kind, (set + (unsigned)kind) % 2 ? "apart" : "whole", kept[0], kept[1]);
				free(got);
			}
			free(want);
		}
}

/* Activation bytes of a rank that holds a stage in the middle of a pipeline. */
static size_t activations(const struct model_settings *m, enum dtype dtype, int tensor, bool sequence, int64_t batch,
			  const unsigned *kept, int64_t layers, int slots, size_t *scratch)
{
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	param_table_init(&params, m, dtype, tensor, 0);
	memory_measure(&memory);
	gpt_build(&gpt, &(struct gpt_options){
		.model = m, .params = &params, .tensor_size = tensor, .stage = 1, .stages = 3, .chunks = 1,
		.layers_of = (int64_t[]){1, layers, 1}, .batch = batch, .sequence = sequence, .kept = kept, .slots = slots,
		.inputs = slots,
	}, &memory);
	size_t used = memory.arena[MEMORY_ACTIVATIONS].used;
	*scratch = memory.arena[MEMORY_SCRATCH].used;
	gpt_finish(&gpt);
	param_table_finish(&params);
	return used;
}

/* The formulas of docs/activation-memory.md, in bytes of a layer and slot. e: bytes of an element. */
static double formula(const struct model_settings *m, enum recompute_choice choice, double e, double t, bool sequence, double N)
{
	double C = (double)m->hidden, F = (double)m->ffn, Q = (double)(m->heads * m->head_size);
	double K = (double)(m->kv_heads * m->head_size), H = (double)m->heads, split = sequence ? t : 1;
	double norms = m->norm == NORM_LAYER ? 16 : 8, lse = 4 * N * H / t;
	double P = m->activation == ACTIVATION_SWIGLU ? 2 * F : F; /* in front of the activation */
	switch (choice) {
	case RECOMPUTE_FULL:
		return e * N * C / split;
	case RECOMPUTE_SELECTIVE:
		return e * N * (2 * C / split + (2 * Q + 2 * K + P) / t) + lse;
	default:
		return e * N * (4 * C / split + (2 * Q + 2 * K + P + F) / t) + norms * N / split + lse;
	}
}

static void test_bytes(void **state)
{
	struct model_settings m = {
		.layers = 8, .heads = 32, .sequence = 128, .vocab = 1000, .norm_epsilon = 1e-5, .bias = true, .qkv_bias = true,
	};
	for (int which = 0; which < 192; which++) {
		int tensor = 1 << which / 2 % 4;
		bool sequence = which % 2, grouped = which / 8 % 2, rms = which / 16 % 2, half = which / 32 % 3 > 0;
		int64_t batch = which / 32 % 3 == 2 ? 4 : 1;
		m.head_size = 16;
		m.hidden = grouped ? 384 : 512;
		m.kv_heads = grouped ? 8 : 32;
		m.ffn = grouped ? 1024 : 2048;
		m.norm = rms ? NORM_RMS : NORM_LAYER;
		m.activation = which < 96 ? ACTIVATION_GELU : ACTIVATION_SWIGLU;
		for (int choice = RECOMPUTE_NONE; choice <= RECOMPUTE_FULL; choice++) {
			unsigned kept[5];
			size_t bytes[2][2], scratch[2][2];
			for (int i = 0; i < 5; i++)
				kept[i] = recompute_kept((enum recompute_choice)choice);
			for (int layers = 0; layers < 2; layers++)
				for (int slots = 0; slots < 2; slots++)
					bytes[layers][slots] = activations(&m, half ? F16 : F32, tensor, sequence, batch, kept,
									   layers ? 5 : 2, slots ? 4 : 1, &scratch[layers][slots]);
			/* 5 layers in 4 slots less 2 layers in 4 slots, less the same in 1 slot: 9. */
			size_t nine = bytes[1][1] - bytes[0][1] - bytes[1][0] + bytes[0][0];
			double want = formula(&m, (enum recompute_choice)choice, half ? 2 : 4, tensor, sequence && tensor > 1,
					      (double)(batch * m.sequence));
			assert_true((double)nine == 9 * want);
			assert_true((double)bytes[1][1] == 20 * want);
			assert_int_equal(scratch[0][0], scratch[1][1]); /* shared by all */
		}
	}
}

/* A GELU block in 16 bits: 32·N·C, 20·N·C, 2·N·C, beside the statistics. */
static void test_headline(void **state)
{
	const struct model_settings m = {.hidden = 12288, .heads = 96, .kv_heads = 96, .head_size = 128, .ffn = 4 * 12288};
	double NC = 2048.0 * 12288, all = formula(&m, RECOMPUTE_NONE, 2, 1, false, 2048);
	double part = formula(&m, RECOMPUTE_SELECTIVE, 2, 1, false, 2048), least = formula(&m, RECOMPUTE_FULL, 2, 1, false, 2048);
	assert_true(all >= 32 * NC && all < 32.1 * NC);
	assert_true(part >= 20 * NC && part < 20.1 * NC);
	assert_true(least == 2 * NC);
	assert_true(1 - part / all >= 0.37);
}

/* With SwiGLU and F = 8/3·C: 32, 22⅔ and 2. */
static void test_headline_swiglu(void **state)
{
	const struct model_settings m = {.hidden = 12288, .heads = 96, .kv_heads = 96, .head_size = 128, .ffn = 32768,
					 .norm = NORM_RMS, .activation = ACTIVATION_SWIGLU};
	double NC = 2048.0 * 12288, all = formula(&m, RECOMPUTE_NONE, 2, 1, false, 2048);
	double part = formula(&m, RECOMPUTE_SELECTIVE, 2, 1, false, 2048), least = formula(&m, RECOMPUTE_FULL, 2, 1, false, 2048);
	assert_true(all >= 32 * NC && all < 32.1 * NC);
	assert_true(part >= 22.66 * NC && part < 22.7 * NC);
	assert_true(least == 2 * NC);
	assert_true(1 - part / all >= 0.28);
}

enum { FIT_LAYERS = 2, FIT_SETS = SETS * SETS };

static unsigned set_at(int all, int position)
{
	return 1u | (unsigned)(all >> (BLOCK_TENSORS - 1) * position & (SETS - 1)) << 1;
}

/* What a choice saves and costs, added up tensor by tensor. */
static double saved_by(const struct recompute_fit *f, const unsigned *kept, double *cost)
{
	double saved = 0;
	*cost = 0;
	for (int t = BLOCK_X + 1; t < BLOCK_TENSORS; t++) {
		bool buffer = false;
		for (int64_t i = 0; i < f->layers; i++) {
			if (kept[i] >> t & 1)
				continue;
			saved += (double)f->rows[t].bytes * (double)f->slots;
			*cost += recompute_cost(&f->rows[t]);
			buffer = true;
		}
		saved -= buffer ? (double)f->rows[t].bytes : 0;
	}
	return saved;
}

static void test_fit(void **state)
{
	for (uint32_t trial = 0; trial < 60; trial++) {
		struct block_row rows[BLOCK_TENSORS] = {{0}};
		struct recompute_fit f = {.rows = rows, .layers = FIT_LAYERS, .slots = 1 + trial % 3};
		unsigned kept[FIT_LAYERS], full[FIT_LAYERS] = {1, 1};
		double cost, most;
		for (int t = 0; t < BLOCK_TENSORS; t++) {
			struct philox w = philox(3, (struct philox){{trial, (uint32_t)t, 0, 0}});
			rows[t].bytes = 64 * (1 + w.word[0] % 40);
			rows[t].flops = (double)(1 + w.word[1] % 1000);
		}
		most = saved_by(&f, full, &cost);
		f.excess = (int64_t)(most * (trial % 12 - 0.5) / 10);
		bool fits = recompute_fit(&f, kept);
		double saved = saved_by(&f, kept, &cost), least = -1;
		for (int all = 0; all < FIT_SETS; all++) {
			double c, s = saved_by(&f, (unsigned[]){set_at(all, 0), set_at(all, 1)}, &c);
			if (s >= (double)f.excess && (least < 0 || c < least))
				least = c;
		}
		assert_int_equal(fits, least >= 0);
		if (fits) {
			assert_true(saved >= (double)f.excess);
			assert_true(cost <= least * (1 + 1e-12));
		} else {
			assert_memory_equal(kept, full, sizeof kept);
		}
	}
}

/* In a real shape the norms and GELUs go first, then attention's output, at last the products; many layers take no time. */
static void test_order(void **state)
{
	const struct model_settings m = {
		.layers = 96, .hidden = 12288, .heads = 96, .kv_heads = 96, .head_size = 128, .ffn = 4 * 12288, .sequence = 2048,
		.vocab = 50257, .norm_epsilon = 1e-5, .bias = true,
	};
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	struct block_row rows[BLOCK_TENSORS];
	unsigned kept[96];
	char text[RECOMPUTE_ROOM];
	param_table_init(&params, &m, F16, 8, 0);
	memory_measure(&memory);
	gpt_build(&gpt, &(struct gpt_options){
		.model = &m, .params = &params, .tensor_size = 8, .stages = 1, .chunks = 1, .layers_of = &m.layers, .batch = 1,
		.sequence = true, .slots = 1, .inputs = 1,
	}, &memory);
	block_rows(rows, &gpt.chunks[0].blocks[0]);
	gpt_finish(&gpt);
	param_table_finish(&params);
	struct recompute_fit f = {.rows = rows, .layers = 96, .slots = 8};
	double cost, unit = 2048.0 * 12288 / 8 * 96 * 8; /* N·C/t of all layers and slots, in bytes */

	assert_true(recompute_fit(&f, kept));
	assert_string_equal(recompute_text(text, kept, 96, rows), "nothing");
	const struct { double share; const char *text; } steps[] = {
		{11.9, "n1, n2 in 92 of 96 layers, g"}, {13.8, "n1, a in 86 of 96 layers, n2, g"},
		{29.9, "n1, qkv, a, x1 in 92 of 96 layers, n2, pre, g"},
	};
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		f.excess = (int64_t)(steps[i].share * unit);
		assert_true(recompute_fit(&f, kept));
		assert_true(saved_by(&f, kept, &cost) >= (double)f.excess);
		assert_string_equal(recompute_text(text, kept, 96, rows), steps[i].text);
	}
	f.excess = (int64_t)(31.5 * unit);
	assert_false(recompute_fit(&f, kept));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits), cmocka_unit_test(test_bytes), cmocka_unit_test(test_headline), cmocka_unit_test(test_headline_swiglu),
		cmocka_unit_test(test_fit), cmocka_unit_test(test_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

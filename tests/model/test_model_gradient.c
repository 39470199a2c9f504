/* The whole model's backward against central finite differences of its forward, in FP64 on the defining ops: tied
 * and untied head, both norms, both GELUs, SwiGLU, rotary positions, grouped heads, dropout, masked targets, padding of the vocabulary, biases on
 * and off. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "dev/cpu/cpu.h"
#include "model/gpt.h"
#include "train/batch.h"

enum { B = 2, PROBES = 5, SLOTS = 2 };

struct rig {
	struct device *dev;
	struct model_settings settings;
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	struct tensor totals, d;
	double totals_memory[2];
};

static void build(struct rig *r, struct device *dev, struct memory *memory)
{
	param_table_init(&r->params, &r->settings, F64, 1, 0);
	struct gpt_options o = {
		.model = &r->settings, .params = &r->params, .dev = dev, .tensor_size = 1,
		.stages = 1, .chunks = 1, .layers_of = &r->settings.layers, .batch = B, .seed = 7, .slots = SLOTS,
		.inputs = SLOTS, .waits = 2,
	};
	gpt_build(&r->gpt, &o, memory);
	r->d = env_rows(&r->gpt.env, memory, MEMORY_COMMUNICATION, r->settings.hidden);
}

static void take_apart(struct rig *r)
{
	gpt_finish(&r->gpt);
	param_table_finish(&r->params);
}

static void put_together(struct rig *r, struct model_settings settings)
{
	struct error e;
	*r = (struct rig){.settings = settings};
	r->totals = tensor_1d(r->totals_memory, F64, 2);
	struct dev_options options = {.threads = 1, .plain = true};
	assert_true(dev_open(&r->dev, &backend_cpu, &options, &e));
	memory_measure(&r->memory);
	build(r, NULL, &r->memory);
	take_apart(r);
	assert_true(memory_open(&r->memory, r->dev, &e));
	build(r, r->dev, &r->memory);

	dev_scalars(r->dev)->loss_scale = 3.0;
	dev_scalars(r->dev)->samples = 11;
	for (int i = 0; i < r->params.count; i++) {
		struct param *p = &r->params.params[i];
		double *w = p->weight.data;
		assert_true(p->here && p->owner);
		for (int64_t j = 0; j < box_count(&p->box); j++) {
			double four[4];
			rng_normal(5, (uint32_t)i, (uint64_t)j, four);
			w[j] = p->fill + 0.3 * four[0];
		}
	}
	for (int slot = 0; slot < SLOTS; slot++) {
		struct gpt_slot *s = &r->gpt.slots[slot];
		int32_t *tokens = s->tokens.data, *targets = s->targets.data, *order = s->order.data;
		int32_t room[64];
		int64_t n = r->gpt.env.tokens;
		for (int64_t i = 0; i < n; i++) {
			struct philox w = philox(9, (struct philox){{(uint32_t)i, (uint32_t)slot, 0, 0}});
			tokens[i] = (int32_t)(w.word[0] % (uint32_t)settings.vocab);
			targets[i] = w.word[2] % 5 == 0 ? -1 : (int32_t)(w.word[1] % (uint32_t)settings.vocab);
		}
		batch_sort(order, tokens, n, room);
		s->pass = (struct pass){.sample = 4 + slot, .training = true};
	}
}

static struct tensor gradients(struct rig *r)
{
	return memory_whole(&r->memory, MEMORY_GRADIENTS, F64);
}

static void zero_gradients(struct rig *r)
{
	dev_zero(r->dev, Q_COMPUTE, gradients(r));
}

static double loss(struct rig *r)
{
	memset(r->totals_memory, 0, sizeof r->totals_memory);
	gpt_forward(&r->gpt, 0, (struct tensor){0}, r->totals, r->d);
	return r->totals_memory[0];
}

/* Backward starts with loss_scale/T a token, so the gradient of Σ losses is what came out times T/loss_scale. */
static void compare(struct rig *r)
{
	zero_gradients(r);
	loss(r);
	gpt_backward(&r->gpt, 0, BACKWARD_BOTH, r->d);
	/* The head's gradients are formed in forward: every probe adds to them, so all are kept first. */
	double **all = calloc((size_t)r->params.count, sizeof *all);
	assert_non_null(all);
	for (int i = 0; i < r->params.count; i++) {
		struct tensor grad = r->params.params[i].grad;
		all[i] = malloc(tensor_bytes(grad));
		assert_non_null(all[i]);
		memcpy(all[i], grad.data, tensor_bytes(grad));
	}
	for (int i = 0; i < r->params.count; i++) {
		struct param *p = &r->params.params[i];
		int64_t count = box_count(&p->box);
		double *w = p->weight.data, *kept = all[i];
		for (int probe = 0; probe < PROBES; probe++) {
			int64_t j = (int64_t)(philox(1, (struct philox){{(uint32_t)probe, (uint32_t)i, 0, 0}}).word[0] % (uint64_t)count);
			double before = w[j], h = 1e-5;
			w[j] = before + h;
			double up = loss(r);
			w[j] = before - h;
			double down = loss(r);
			w[j] = before;
			double numeric = (up - down) / (2 * h);
			double formed = kept[j] * (double)r->settings.sequence / dev_scalars(r->dev)->loss_scale;
			if (fabs(numeric - formed) > 1e-6 * (1 + fabs(numeric)))
				fail_msg("%s[%lld]: difference quotient %.9g, backward %.9g", p->name, (long long)j, numeric, formed);
		}
		for (int64_t j = count; j < tensor_count(p->grad); j++)
			assert_true(kept[j] == 0.0); /* padded rows get no gradient */
		free(kept);
	}
	free(all);
	take_apart(r);
	memory_close(&r->memory);
	dev_close(r->dev);
}

/* Two micro-batches whose weight parts come behind both input parts, twice over the same slots, give the bits of whole
 * backwards. */
static void compare_split(struct rig *r)
{
	struct tensor all = gradients(r);
	void *d = malloc(tensor_bytes(r->d)), *grads = malloc(tensor_bytes(all));
	assert_non_null(d);
	assert_non_null(grads);
	for (int round = 0; round < 3; round++) {
		zero_gradients(r);
		for (int slot = 0; slot < SLOTS; slot++) {
			struct pass pass = {.sample = 4 + slot, .training = true};
			gpt_place(&r->gpt, slot, 0, (slot + round) % SLOTS, &pass);
			gpt_forward(&r->gpt, slot, (struct tensor){0}, r->totals, r->d);
			gpt_backward(&r->gpt, slot, round ? BACKWARD_INPUT : BACKWARD_BOTH, r->d);
		}
		if (round)
			assert_memory_equal(r->d.data, d, tensor_bytes(r->d));
		memcpy(d, r->d.data, tensor_bytes(r->d));
		for (int slot = 0; round && slot < SLOTS; slot++)
			gpt_backward(&r->gpt, slot, BACKWARD_WEIGHT, (struct tensor){0});
		if (round)
			assert_memory_equal(grads, all.data, tensor_bytes(all));
		memcpy(grads, all.data, tensor_bytes(all));
	}
	free(grads);
	free(d);
	take_apart(r);
	memory_close(&r->memory);
	dev_close(r->dev);
}

static const struct model_settings plain_settings = {
	.layers = 2, .hidden = 12, .heads = 4, .kv_heads = 4, .head_size = 3, .ffn = 20, .sequence = 7, .vocab = 31,
	.norm = NORM_LAYER, .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .bias = true, .qkv_bias = true, .tied = true,
};

static void test_gpt2(void **state)
{
	struct rig r;
	put_together(&r, plain_settings);
	compare(&r);
}

static void test_dropout_untied(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	m.tied = false;
	m.dropout = 0.2;
	m.attention_dropout = 0.3;
	m.activation = ACTIVATION_GELU_ERF;
	put_together(&r, m);
	compare(&r);
}

static void test_grouped_rms_no_bias(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	m.kv_heads = 2;
	m.head_size = 5;
	m.norm = NORM_RMS;
	m.bias = m.qkv_bias = false;
	put_together(&r, m);
	compare(&r);
}

/* As in Llama: RMSNorm, SwiGLU, grouped heads. */
static void test_swiglu(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	m.activation = ACTIVATION_SWIGLU;
	put_together(&r, m);
	compare(&r);
	m.kv_heads = 2;
	m.norm = NORM_RMS;
	m.bias = m.qkv_bias = m.tied = false;
	m.dropout = 0.2;
	put_together(&r, m);
	compare(&r);
}

static void test_rope(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	m.position = POSITION_ROPE;
	m.head_size = 4;
	m.rope_base = 100;
	m.rotary_fraction = 1;
	put_together(&r, m);
	compare(&r);
	m.kv_heads = 2;
	m.head_size = 6;
	m.rotary_fraction = 4.0 / 6;
	m.rope_scaling = "llama3:2,1,4,5";
	m.dropout = 0.2;
	put_together(&r, m);
	compare(&r);
}

/* As in Baichuan 2 13B; heads of a number that is no power of two, and grouped. */
static void test_alibi(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	m.position = POSITION_ALIBI;
	put_together(&r, m);
	compare(&r);
	m.heads = 6;
	m.kv_heads = 2;
	m.norm = NORM_RMS;
	m.activation = ACTIVATION_SWIGLU;
	m.bias = m.qkv_bias = m.tied = false;
	m.normalized_head = true;
	m.attention_dropout = 0.2;
	put_together(&r, m);
	compare(&r);
}

static void test_normalized_head(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	m.normalized_head = true;
	put_together(&r, m);
	compare(&r);
	m.tied = false;
	put_together(&r, m);
	compare(&r);
}

static void test_split(void **state)
{
	struct rig r;
	struct model_settings m = plain_settings;
	put_together(&r, m);
	compare_split(&r);
	m.dropout = 0.2;
	m.attention_dropout = 0.3;
	m.tied = false;
	put_together(&r, m);
	compare_split(&r);
	m.dropout = m.attention_dropout = 0;
	m.kv_heads = 2;
	m.bias = m.qkv_bias = false;
	put_together(&r, m);
	compare_split(&r);
	m.activation = ACTIVATION_SWIGLU;
	m.position = POSITION_ROPE;
	m.head_size = 6;
	m.rope_base = 100;
	m.rotary_fraction = 1;
	put_together(&r, m);
	compare_split(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpt2),
		cmocka_unit_test(test_dropout_untied),
		cmocka_unit_test(test_grouped_rms_no_bias),
		cmocka_unit_test(test_swiglu),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_alibi),
		cmocka_unit_test(test_normalized_head),
		cmocka_unit_test(test_split),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

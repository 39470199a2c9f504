/* One rank in FP32 against tests/golden/gpt2-tiny, a GPT-2 made independently in FP64: loss, logits and every gradient
 * to 1e-5 of each tensor's largest value, and 20 steps of AdamW with clipping to 1e-4. Both columns of ops.
 *
 * Left out of the gradients: the key part of the qkv bias, whose gradient is zero in exact arithmetic. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "dev/cpu/cpu.h"
#include "model/gpt.h"
#include "train/batch.h"
#include "train/optim.h"
#include "train/safetensors.h"

enum { B = 8, T = 16, C = 32, H = 4, D = 8, F = 128, V = 101, L = 2, STEPS = 20 };

static const char *folder;

static const struct model_settings settings = {
	.layers = L, .hidden = C, .heads = H, .kv_heads = H, .head_size = D, .ffn = F, .sequence = T, .vocab = V,
	.norm = NORM_LAYER, .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .bias = true, .qkv_bias = true, .tied = true,
};

static struct step_rules rules = {
	.schedule = LR_CONSTANT, .lr = 3e-3, .min_lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
	.weight_decay = 0.1, .clip = 1.0, .scale_min = 1, .sequence = T, .global_batch = B,
};

struct rig {
	struct device *dev;
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	struct slices slices;
	struct optim optim;
	struct tensor totals, d, sums;
};

static void build(struct rig *r, struct device *dev)
{
	param_table_init(&r->params, &settings, F32, 1, 0);
	gpt_build(&r->gpt, &(struct gpt_options){
		.model = &settings, .params = &r->params, .dev = dev, .tensor_size = 1, .stages = 1, .chunks = 1,
		.layers_of = &settings.layers, .batch = B, .slots = 1, .inputs = 1,
	}, &r->memory);
	slices_init(&r->slices, &r->params, 0);
	optim_build(&r->optim, &(struct optim_options){.dev = dev, .params = &r->params, .slices = &r->slices, .rules = rules},
		    &r->memory);
	r->d = env_rows(&r->gpt.env, &r->memory, MEMORY_COMMUNICATION, C);
	r->totals = arena_1d(&r->memory.arena[MEMORY_COMMUNICATION], F64, 2);
	r->sums = arena_1d(&r->memory.arena[MEMORY_COMMUNICATION], F64, r->params.count);
}

static void take_apart(struct rig *r)
{
	optim_finish(&r->optim);
	slices_finish(&r->slices);
	gpt_finish(&r->gpt);
	param_table_finish(&r->params);
}

static void open_golden(struct safetensors *s, const char *name)
{
	char path[PATH_ROOM];
	struct error e;
	assert_true(file_join(path, folder, name));
	if (!safetensors_open(s, path, &e))
		fail_msg("%s", e.text);
}

/* How a tensor of the reference lies: its name, and for an element of ours where that is in it. Their linear weights are
 * [in, out]; c_attn's outputs are q, k, v, each [H, D]. */
static const char *golden_name(const char *name, char *out, size_t room)
{
	static const char *const names[][2] = {
		{"embedding.token.weight", "wte.weight"}, {"embedding.position.weight", "wpe.weight"},
		{"norm.weight", "ln_f.weight"}, {"norm.bias", "ln_f.bias"},
		{"norm1.weight", "ln_1.weight"}, {"norm1.bias", "ln_1.bias"},
		{"attention.qkv.weight", "attn.c_attn.weight"}, {"attention.qkv.bias", "attn.c_attn.bias"},
		{"attention.out.weight", "attn.c_proj.weight"}, {"attention.out.bias", "attn.c_proj.bias"},
		{"norm2.weight", "ln_2.weight"}, {"norm2.bias", "ln_2.bias"},
		{"mlp.up.weight", "mlp.c_fc.weight"}, {"mlp.up.bias", "mlp.c_fc.bias"},
		{"mlp.down.weight", "mlp.c_proj.weight"}, {"mlp.down.bias", "mlp.c_proj.bias"},
	};
	int layer = -1, at = 0;
	if (sscanf(name, "layers.%d.%n", &layer, &at) == 1)
		name += at;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(names[i][0], name) == 0) {
			if (layer >= 0)
				snprintf(out, room, "transformer.h.%d.%s", layer, names[i][1]);
			else
				snprintf(out, room, "transformer.%s", names[i][1]);
			return out;
		}
	fail_msg("%s: not known", name);
	return NULL;
}

static int64_t golden_index(const struct param *p, int64_t e)
{
	const char *name = strstr(p->name, "attention.qkv") ? "qkv" : strstr(p->name, ".weight") ? "weight" : "bias";
	if (strcmp(name, "qkv") == 0) { /* [H, 3, D(, C)] */
		int64_t c = p->dims == 4 ? e % C : 0, row = p->dims == 4 ? e / C : e;
		int64_t h = row / (3 * D), part = row / D % 3, d = row % D;
		int64_t column = part * C + h * D + d;
		return p->dims == 4 ? c * 3 * C + column : column;
	}
	if (strstr(p->name, "attention.out.weight") || strstr(p->name, "mlp."))
		if (p->dims >= 2) { /* ours [out, in…], theirs [in, out] */
			int64_t out = p->shape[0], in = p->shape[1] * p->shape[2];
			return e % in * out + e / in;
		}
	return e;
}

static double *read_golden(const struct safetensors *s, const char *name, int64_t *count)
{
	struct error e;
	const struct safetensors_tensor *t = safetensors_find(s, name);
	if (!t)
		fail_msg("%s: not in the file", name);
	*count = safetensors_count(t);
	double *out = malloc((size_t)*count * sizeof *out);
	assert_non_null(out);
	assert_true(safetensors_read(s, t, 0, *count, out, &e));
	if (t->dtype == F32)
		for (int64_t i = *count - 1; i >= 0; i--)
			out[i] = (double)((const float *)(const void *)out)[i];
	return out;
}

static void load(struct rig *r)
{
	struct safetensors s;
	char path[PATH_ROOM], name[128], *bytes;
	struct error e;
	size_t size;
	int64_t count;
	int32_t inputs[B * T], targets[B * T], order[B * T], room[B * T];

	open_golden(&s, "model.safetensors");
	for (int i = 0; i < r->params.count; i++) {
		const struct param *p = &r->params.params[i];
		double *golden = read_golden(&s, golden_name(p->name, name, sizeof name), &count);
		float *weight = p->weight.data;
		for (int64_t j = 0; j < count; j++)
			weight[j] = (float)golden[golden_index(p, j)];
		free(golden);
	}
	safetensors_close(&s);
	assert_true(file_join(path, folder, "tokens.bin"));
	assert_true(file_read(path, &bytes, &size, CODE_DATA, &e));
	assert_int_equal(size, 2 * (B * T + 1));
	for (int i = 0; i < B * T; i++) {
		inputs[i] = (uint8_t)bytes[2 * i] | (uint8_t)bytes[2 * i + 1] << 8;
		targets[i] = (uint8_t)bytes[2 * i + 2] | (uint8_t)bytes[2 * i + 3] << 8;
	}
	free(bytes);
	batch_sort(order, inputs, B * T, room);
	struct gpt_slot *slot = &r->gpt.slots[0];
	slot->pass = (struct pass){.training = true};
	dev_write(r->dev, Q_COMPUTE, slot->tokens, inputs);
	dev_write(r->dev, Q_COMPUTE, slot->targets, targets);
	dev_write(r->dev, Q_COMPUTE, slot->order, order);
	dev_write_scalars(r->dev, Q_COMPUTE, &(struct scalars){.loss_scale = 1.0});
}

static void put_together(struct rig *r, bool plain)
{
	struct error e;
	struct dev_options options = {.threads = 1, .plain = plain};
	*r = (struct rig){0};
	assert_true(dev_open(&r->dev, &backend_cpu, &options, &e));
	memory_measure(&r->memory);
	build(r, NULL);
	struct dev_limits limits = gpt_limits(&r->gpt);
	take_apart(r);
	assert_true(dev_reserve(r->dev, &limits, &e) && memory_open(&r->memory, r->dev, &e));
	build(r, r->dev);
	load(r);
}

static void close_rig(struct rig *r)
{
	take_apart(r);
	memory_close(&r->memory);
	dev_close(r->dev);
}

static void forward_backward(struct rig *r)
{
	dev_zero(r->dev, Q_COMPUTE, memory_whole(&r->memory, MEMORY_GRADIENTS, F32));
	dev_zero(r->dev, Q_COMPUTE, r->totals);
	gpt_forward(&r->gpt, 0, (struct tensor){0}, r->totals, r->d);
	gpt_backward(&r->gpt, 0, BACKWARD_BOTH, r->d);
}

static cJSON *expected(void)
{
	char path[PATH_ROOM], *text;
	struct error e;
	size_t size;
	assert_true(file_join(path, folder, "expected.json"));
	assert_true(file_read(path, &text, &size, CODE_DATA, &e));
	cJSON *json = cJSON_Parse(text);
	assert_non_null(json);
	free(text);
	return json;
}

static double number(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItem(object, key);
	assert_true(cJSON_IsNumber(item));
	return item->valuedouble;
}

/* Backward starts with 1/T a token here; the mean over all B·T tokens is that times 1/B. */
static void check_gradients(struct rig *r)
{
	struct safetensors s;
	char name[128];
	int64_t count;

	open_golden(&s, "gradients.safetensors");
	for (int i = 0; i < r->params.count; i++) {
		const struct param *p = &r->params.params[i];
		const float *grad = p->grad.data;
		double *golden = read_golden(&s, golden_name(p->name, name, sizeof name), &count);
		bool is_qkv_bias = strstr(p->name, "qkv.bias") != NULL;
		double largest = 0, worst = 0;
		for (int64_t j = 0; j < count; j++)
			largest = fmax(largest, fabs(golden[j]));
		for (int64_t j = 0; j < count; j++)
			if (!is_qkv_bias || j / D % 3 != 1)
				worst = fmax(worst, fabs((double)grad[j] / B - golden[golden_index(p, j)]));
		if (worst > 1e-5 * largest)
			fail_msg("%s: gradient is off by %.2e of its largest value", p->name, worst / largest);
		free(golden);
	}
	safetensors_close(&s);
}

static void check_logits(struct rig *r)
{
	struct safetensors s;
	float row[V];
	int64_t count;
	double largest = 0, worst = 0;

	open_golden(&s, "logits.safetensors");
	double *golden = read_golden(&s, "logits", &count);
	assert_int_equal(count, B * T * V);
	for (int64_t i = 0; i < count; i++)
		largest = fmax(largest, fabs(golden[i]));
	for (int64_t n = 0; n < B * T; n++) {
		gpt_logits(&r->gpt, 0, n, row);
		for (int64_t v = 0; v < V; v++)
			worst = fmax(worst, fabs((double)row[v] - golden[n * V + v]));
	}
	if (worst > 1e-5 * largest)
		fail_msg("logits are off by %.2e of their largest value", worst / largest);
	free(golden);
	safetensors_close(&s);
}

static void check_curve(struct rig *r, const cJSON *json)
{
	const cJSON *curve = cJSON_GetObjectItem(json, "curve");
	struct tensor *grads = calloc((size_t)r->params.count, sizeof *grads);
	int64_t *slots = calloc((size_t)r->params.count, sizeof *slots);

	assert_int_equal(cJSON_GetArraySize(curve), STEPS);
	for (int i = 0; i < r->params.count; i++) {
		grads[i] = r->params.params[i].grad;
		slots[i] = i;
	}
	for (int i = 0; i < STEPS; i++) {
		const cJSON *want = cJSON_GetArrayItem(curve, i);
		struct scalars s;
		forward_backward(r);
		op_square_sums(r->dev, &(struct op_square_sums){
			.sums = r->sums, .grads = grads, .slots = slots, .count = r->params.count});
		op_step_verdict(r->dev, &(struct op_step_verdict){.totals = r->totals, .sums = r->sums, .rules = rules});
		optim_update(&r->optim);
		dev_read_scalars(r->dev, Q_COMPUTE, &s);
		if (fabs(s.loss / number(want, "loss") - 1) > 1e-4 || fabs(s.grad_norm / number(want, "grad_norm") - 1) > 1e-4)
			fail_msg("step %d: loss %.9g, norm %.9g, not %.9g, %.9g", i + 1, s.loss, s.grad_norm,
				 number(want, "loss"), number(want, "grad_norm"));
	}
	free(grads);
	free(slots);
}

static void check_all(bool plain)
{
	struct rig r;
	cJSON *json = expected();

	put_together(&r, plain);
	forward_backward(&r);
	double loss = ((const double *)r.totals.data)[0] / (B * T);
	if (fabs(loss / number(json, "loss") - 1) > 1e-5)
		fail_msg("loss %.9g, not %.9g", loss, number(json, "loss"));
	check_gradients(&r);
	check_logits(&r);
	check_curve(&r, json);
	close_rig(&r);
	cJSON_Delete(json);
}

static void test_plain(void **state)
{
	(void)state;
	check_all(true);
}

static void test_fast(void **state)
{
	(void)state;
	check_all(false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_fast)};
	if (argc != 2)
		return 2;
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

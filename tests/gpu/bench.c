/* How near each kernel and each matrix product comes to what the card can do: the floor of a call is its bytes by the copy
 * rate, or its FLOPs by the product rate, both measured here first (dev/op_cost.h counts them). Attention by another library
 * stands beside ours where it agrees.
 *
 * Usage: gpu-bench [--json FILE] [--small] [fp16|bf16]. --small: tiny shapes, once each, as an emulator needs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends.h"
#include "base/arena.h"
#include "dev/op_cost.h"
#include "dev/tuning.h"

struct model {
	const char *name;
	int64_t N, T, C, H, D, F, V; /* rows, sequence, width, heads, head size, inner width, vocabulary of a head block */
};

static const struct model models[] = {
	{"124M", 16384, 1024, 768, 12, 64, 3072, 50304},
	{"350M", 16384, 1024, 1024, 16, 64, 4096, 50304},
	{"1.3B", 16384, 2048, 2048, 16, 128, 8192, 50304},
	{"13B", 8192, 2048, 5120, 40, 128, 20480, 50304},
};
static const struct model small_models[] = {{"small", 64, 32, 64, 1, 64, 128, 256}};

static struct device *dev;
static struct arena arena;
static enum dtype type = F16;
static const char *model_name;
static double copy_rate, product_rate; /* bytes and FLOPs a second */
static bool small, tuning;             /* tuning: products are only shown to the device */
static FILE *json;
static const char *comma = "";
static size_t most;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void finish(void)
{
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
}

#define TENSOR(t, ...) \
	arena_tensor(&arena, t, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* Row numbers, sorted or spread over a range. */
static struct tensor numbers(int64_t n, int64_t below, bool in_order)
{
	struct tensor x = arena_1d(&arena, I32, n);
	if (arena_measuring(&arena))
		return x;
	int32_t *host = malloc((size_t)n * sizeof *host);
	check(host);
	for (int64_t i = 0; i < n; i++)
		host[i] = (int32_t)(in_order ? i % below : i * 7919 % below);
	dev_write(dev, Q_COMPUTE, x, host);
	finish();
	free(host);
	return x;
}

static void tell(const char *text, double seconds, struct op_cost cost)
{
	double by_flops = product_rate > 0 ? cost.flops / product_rate : 0, by_bytes = copy_rate > 0 ? cost.bytes / copy_rate : 0;
	double floor = by_flops > by_bytes ? by_flops : by_bytes;
	printf("%-6s %-24s %10.1f us  %8.1f TFLOP/s %8.1f GB/s  %5.1f%% of its floor (%s)\n", model_name, text, 1e6 * seconds,
	       1e-12 * cost.flops / seconds, 1e-9 * cost.bytes / seconds, 100 * floor / seconds,
	       by_flops > by_bytes ? "FLOPs" : "bytes");
	fflush(stdout);
	if (json)
		fprintf(json, "%s\n {\"model\": \"%s\", \"op\": \"%s\", \"dtype\": \"%s\", \"seconds\": %.4g, \"flops\": %.6g, "
			"\"bytes\": %.6g, \"floor_seconds\": %.4g, \"of_floor\": %.4f}", comma, model_name, text, dtype_name(type),
			seconds, cost.flops, cost.bytes, floor, floor / seconds);
	comma = ",";
}

/* The best of three rounds, each of as many calls as take a twentieth of a second. */
#define TIME(text, name, ...)                                                                       \
	do {                                                                                        \
		struct op_##name op = __VA_ARGS__;                                                  \
		double best = 1e9;                                                                  \
		int times = 1, rounds = small || tuning ? 1 : 4;                                    \
		for (int round = 0; !arena_measuring(&arena) && round < rounds; round++) {          \
			finish();                                                                   \
			double begin = now();                                                       \
			for (int i = 0; i < times; i++)                                             \
				op_##name(dev, &op);                                                \
			finish();                                                                   \
			double each = (now() - begin) / times;                                      \
			best = each < best && (round || rounds == 1) ? each : best;                 \
			times = each < 0.05 / 2000 ? 2000 : (int)(0.05 / each) + 1;                 \
		}                                                                                   \
		if (!arena_measuring(&arena) && !tuning)                                            \
			tell(text, best, op_cost_##name(&op));                                      \
		most = arena.used > most ? arena.used : most;                                       \
		arena.used = 0;                                                                     \
	} while (0)

/* Forward x·Wᵀ, dx = dy·W, dW += dyᵀ·x of a linear from k to n features. */
static void linear(const char *name, int64_t N, int64_t k, int64_t n, enum gemm_epilogue forward, enum gemm_epilogue backward)
{
	char text[64];
	bool gelu = forward == GEMM_BIAS_GELU, dgelu = backward == GEMM_DGELU;
	snprintf(text, sizeof text, "gemm %s%s", name, gelu ? " + gelu" : "");
	TIME(text, gemm,
	     {.out = TENSOR(type, N, n), .a = TENSOR(type, N, k), .b = TENSOR(type, n, k), .b_transposed = true, .epilogue = forward,
	      .bias = forward == GEMM_PLAIN ? (struct tensor){0} : TENSOR(type, n),
	      .aux = gelu ? TENSOR(type, N, n) : (struct tensor){0}});
	snprintf(text, sizeof text, "gemm %s dx%s", name, dgelu ? " + dgelu" : "");
	TIME(text, gemm, {.out = TENSOR(type, N, k), .a = TENSOR(type, N, n), .b = TENSOR(type, n, k), .epilogue = backward,
			  .aux = dgelu ? TENSOR(type, N, k) : (struct tensor){0}});
	snprintf(text, sizeof text, "gemm %s dW", name);
	TIME(text, gemm, {.out = TENSOR(F32, n, k), .a = TENSOR(type, N, n), .b = TENSOR(type, N, k), .a_transposed = true,
			  .accumulate = true});
}

static void products(const struct model *m)
{
	int64_t head_rows = m->N < 4096 ? m->N : 4096;
	linear("qkv", m->N, m->C, 3 * m->C, GEMM_BIAS, GEMM_PLAIN);
	linear("out", m->N, m->C, m->C, GEMM_PLAIN, GEMM_PLAIN);
	linear("up", m->N, m->C, m->F, GEMM_BIAS_GELU, GEMM_PLAIN);
	linear("down", m->N, m->F, m->C, GEMM_PLAIN, GEMM_DGELU);
	linear("head", head_rows, m->C, m->V, GEMM_PLAIN, GEMM_PLAIN);
}

static void attention_as(const struct model *m, double rate, const char *how)
{
	const struct dropout dropout = {.rate = rate, .seed = 1, .site = 1, .span = {.length = m->T, .sequence = m->T}};
	double scale = 0.125;
	char text[64];
	snprintf(text, sizeof text, "attention%s", how);
	TIME(text, attention_forward,
	     {.out = TENSOR(type, m->N, m->H, m->D), .lse = TENSOR(F32, m->N / m->T, m->H, m->T),
	      .qkv = TENSOR(type, m->N, m->H, 3, m->D), .sequence = m->T, .scale = scale, .dropout = dropout});
	snprintf(text, sizeof text, "attention backward%s", how);
	TIME(text, attention_backward,
	     {.dqkv = TENSOR(type, m->N, m->H, 3, m->D), .delta = TENSOR(F32, m->N / m->T, m->H, m->T),
	      .dout = TENSOR(type, m->N, m->H, m->D), .out = TENSOR(type, m->N, m->H, m->D),
	      .lse = TENSOR(F32, m->N / m->T, m->H, m->T), .qkv = TENSOR(type, m->N, m->H, 3, m->D), .sequence = m->T,
	      .scale = scale, .dropout = dropout});
}

/* Ours, which was just timed, and another library's beside it where there is one that agrees. */
static void attention_other(const struct model *m)
{
	struct tuning chosen = {0};
	bool other = false;
	if (arena_measuring(&arena))
		return;
	dev_choose(dev, &chosen, false);
	for (int i = 0; i < chosen.count; i++) {
		const char *key = chosen.list[i].key, *value = chosen.list[i].value;
		if (strncmp(key, "refused attention", 17) == 0)
			printf("%s: %s\n", key, value);
		else if (strncmp(key, "attention", 9) == 0 && strcmp(value, "own") != 0) {
			printf("%s: %s\n", key, value);
			other = true;
		}
	}
	if (other)
		attention_as(m, 0, ", cudnn");
	for (int i = 0; i < chosen.count; i++)
		if (strncmp(chosen.list[i].key, "attention", 9) == 0)
			tuning_set(&chosen, chosen.list[i].key, "own");
	dev_told(dev, &chosen);
	tuning_finish(&chosen);
}

static void rows(const struct model *m, double rate)
{
	const struct dropout dropout = {.rate = rate, .seed = 1, .site = 1, .span = {.length = m->T, .sequence = m->T}};
	const char *drop = rate > 0 ? ", dropout" : "";
	int64_t N = m->N, C = m->C;
	char text[64];
	snprintf(text, sizeof text, "residual + norm%s", drop);
	TIME(text, residual_forward,
	     {.sum = TENSOR(type, N, C), .residual = TENSOR(type, N, C), .x = TENSOR(type, N, C), .bias = TENSOR(type, C),
	      .dropout = dropout, .out = TENSOR(type, N, C), .mean = TENSOR(F32, N), .rstd = TENSOR(F32, N),
	      .norm_weight = TENSOR(type, C), .norm_bias = TENSOR(type, C), .epsilon = 1e-5});
	snprintf(text, sizeof text, "residual backward%s", drop);
	TIME(text, residual_backward,
	     {.dx = TENSOR(type, N, C), .dbias = TENSOR(F32, C), .dsum = TENSOR(type, N, C), .dropout = dropout});
}

static void kernels(const struct model *m)
{
	int64_t N = m->N, C = m->C, F = m->F, block = N < 2048 ? N : 2048, P = small ? 4096 : 1 << 26;
	const struct dropout none = {.span = {.length = m->T, .sequence = m->T}};
	rows(m, 0);
	rows(m, 0.1);
	TIME("norm", norm_forward,
	     {.out = TENSOR(type, N, C), .mean = TENSOR(F32, N), .rstd = TENSOR(F32, N), .x = TENSOR(type, N, C),
	      .weight = TENSOR(type, C), .bias = TENSOR(type, C), .epsilon = 1e-5});
	TIME("norm backward", norm_backward,
	     {.dx = TENSOR(type, N, C), .dweight = TENSOR(F32, C), .dbias = TENSOR(F32, C), .dout = TENSOR(type, N, C),
	      .dresidual = TENSOR(type, N, C), .x = TENSOR(type, N, C), .mean = TENSOR(F32, N), .rstd = TENSOR(F32, N),
	      .weight = TENSOR(type, C)});
	TIME("bias backward", bias_backward, {.dbias = TENSOR(F32, F), .dout = TENSOR(type, N, F)});
	TIME("gelu", gelu_forward, {.out = TENSOR(type, N, F), .x = TENSOR(type, N, F)});
	TIME("swiglu", swiglu_forward, {.out = TENSOR(type, N, F / 2), .x = TENSOR(type, N, F)});
	TIME("swiglu backward", swiglu_backward,
	     {.dx = TENSOR(type, N, F), .dout = TENSOR(type, N, F / 2), .x = TENSOR(type, N, F)});
	TIME("embedding", embedding_forward,
	     {.out = TENSOR(type, N, C), .tokens = numbers(N, m->V, false), .table = TENSOR(type, m->V, C)});
	TIME("position", position_forward, {.out = TENSOR(type, N, C), .x = TENSOR(type, N, C), .table = TENSOR(type, m->T, C), .dropout = none});
	TIME("loss statistics", loss_stats,
	     {.stats = TENSOR(F32, block, 3), .logits = TENSOR(type, block, m->V), .targets = numbers(block, m->V, false),
	      .valid = m->V});
	TIME("loss backward", loss_backward,
	     {.logits = TENSOR(type, block, m->V), .lse = TENSOR(F32, block), .targets = numbers(block, m->V, false), .valid = m->V,
	      .sequence = m->T});
	TIME("add", add, {.y = TENSOR(type, N, C), .x = TENSOR(type, N, C)});
	struct tensor grad = TENSOR(F32, P);
	int64_t slot = 0;
	TIME("square sums", square_sums, {.sums = TENSOR(F64, 1), .grads = &grad, .slots = &slot, .count = 1});
	struct adamw_item item = {.master = TENSOR(F32, P), .m = TENSOR(F32, P), .v = TENSOR(F32, P), .grad = TENSOR(F32, P),
				  .weight = TENSOR(type, P), .decay = true};
	TIME("adamw", adamw, {.items = &item, .count = 1, .rules = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .sequence = m->T,
								 .global_batch = 1, .scale_min = 1}});
	attention_as(m, 0, "");
	attention_other(m);
	attention_as(m, 0.1, ", dropout");
}

/* The card's own rates: a copy of a large block, a square product. */
static void measure(void)
{
	int64_t bytes = small ? 1 << 16 : 1l << 30, side = small ? 64 : 8192;
	const struct op_cost copy = {.bytes = 2 * (double)bytes};
	struct tensor from = TENSOR(U8, bytes), to = TENSOR(U8, bytes);
	model_name = "card";
	for (int round = 0; !arena_measuring(&arena) && round < 5; round++) {
		double begin = now();
		for (int i = 0; i < 8; i++)
			dev_copy(dev, Q_COMPUTE, to, from);
		finish();
		double rate = 8 * copy.bytes / (now() - begin);
		copy_rate = rate > copy_rate ? rate : copy_rate;
	}
	most = arena.used > most ? arena.used : most;
	arena.used = 0;
	struct op_gemm op = {.out = TENSOR(type, side, side), .a = TENSOR(type, side, side), .b = TENSOR(type, side, side),
			     .b_transposed = true};
	for (int round = 0; !arena_measuring(&arena) && round < (small ? 1 : 6); round++) {
		double begin = now();
		for (int i = 0; i < 8; i++)
			op_gemm(dev, &op);
		finish();
		double rate = 8 * op_cost_gemm(&op).flops / (now() - begin);
		product_rate = rate > product_rate ? rate : product_rate;
	}
	most = arena.used > most ? arena.used : most;
	arena.used = 0;
}

static void run(const struct model *list, int count)
{
	measure();
	if (!arena_measuring(&arena) && !tuning)
		printf("copies %.1f GB/s, products in %s %.1f TFLOP/s\n", 1e-9 * copy_rate, dtype_name(type), 1e-12 * product_rate);
	for (int i = 0; i < count; i++) {
		model_name = list[i].name;
		products(&list[i]);
		if (!tuning)
			kernels(&list[i]);
	}
}

/* Numbers that every float type finds finite and not too alike: products of zeros draw less power than a model's. */
static void fill(void *memory, size_t bytes)
{
	size_t part = bytes < 64 << 20 ? bytes : 64 << 20;
	uint16_t *host = malloc(part);
	check(host);
	for (size_t i = 0; i < part / sizeof *host; i++)
		host[i] = (uint16_t)(0x2c00 + ((i * 2654435761u >> 7) & 0x0bff) + (i % 3 == 0 ? 0x8000 : 0));
	for (size_t at = 0; at < bytes; at += part)
		dev_write(dev, Q_COMPUTE, tensor_1d((char *)memory + at, U8, (int64_t)(bytes - at < part ? bytes - at : part)), host);
	finish();
	free(host);
}

int main(int argc, char **argv)
{
	struct dev_options options = {.threads = 1, .timeout = 120};
	struct error e;
	struct tuning chosen = {0};
	void *memory;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
			json = fopen(argv[++i], "w");
		else if (strcmp(argv[i], "--small") == 0)
			small = true;
		else if (strcmp(argv[i], "bf16") == 0 || strcmp(argv[i], "fp16") == 0)
			type = *argv[i] == 'b' ? BF16 : F16;
	}
	const struct model *list = small ? small_models : models;
	int count = small ? 1 : sizeof models / sizeof *models;
	struct dev_limits limits = {.rows = 16384, .width = 50304, .head_size = 128, .tensors = 1,
				    .scores = 16384l * 16 * 2048, .group_scores = 2048 * 2048};
	if (!dev_open(&dev, backends[0], &options, &e) || !dev_reserve(dev, &limits, &e)) {
		fprintf(stderr, "gpu-bench: %s\n", e.text);
		return e.code;
	}
	arena_measure(&arena, "bench");
	run(list, count);
	if (!dev_take(dev, &memory, most, &e)) {
		fprintf(stderr, "gpu-bench: %s\n", e.text);
		return e.code;
	}
	fill(memory, most);
	arena_init(&arena, "bench", memory, most);
	tuning = true;
	run(list, count);
	dev_choose(dev, &chosen, true);
	tuning = false;
	printf("%s\n", dev_name(dev));
	if (json)
		fprintf(json, "{\"device\": \"%s\", \"calls\": [", dev_name(dev));
	run(list, count);
	if (json)
		fprintf(json, "\n], \"copy_bytes_per_second\": %.6g, \"product_flops_per_second\": %.6g}\n", copy_rate, product_rate);
	bool good = !json || fclose(json) == 0;
	tuning_finish(&chosen);
	dev_give_back(dev, memory);
	dev_close(dev);
	return good ? 0 : 1;
}

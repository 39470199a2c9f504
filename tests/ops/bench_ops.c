/* How fast the ops are at the shapes of GPT-2 124M, 4 × 256 tokens: one line an op, best of several runs.
 *
 * Usage: bench-ops [THREADS] [fp32|fp16|bf16] [INSTRUCTIONS]. Time is given twice: as the clock on the wall says, and as
 * processor time divided by threads, which other jobs on the machine disturb less. Rates and the share of the peak
 * (of GEMMs and attention) are of the latter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "dev/cpu/cpu.h"

enum { N = 1024, B = 4, T = 256, H = 12, D = 64, C = 768, F = 3072, V = 50304, ADAM = 1 << 25 };

static struct device *dev;
static struct arena arena;
static enum dtype type;
static int threads;

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Small numbers of both signs, in any float type. */
static struct tensor tensor(enum dtype t, int dims, const int64_t *shape)
{
	struct tensor x = arena_tensor(&arena, t, dims, shape);
	for (int64_t i = 0; !arena_measuring(&arena) && i < tensor_count(x); i++) {
		float v = (float)((uint32_t)i * 2654435761u >> 20) / 4096.0f - 0.5f;
		if (t == F32)
			((float *)x.data)[i] = v;
		else
			((uint16_t *)x.data)[i] = t == F16 ? fp16_from_float(v) : bf16_from_float(v);
	}
	return x;
}

#define TENSOR(t, ...) \
	tensor(t, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static struct tensor numbers(int64_t n, int64_t below, bool count_up)
{
	struct tensor x = arena_1d(&arena, I32, n);
	for (int64_t i = 0; !arena_measuring(&arena) && i < n; i++)
		((int32_t *)x.data)[i] = (int32_t)(count_up ? i : i * below / n);
	return x;
}

/* Runs until a tenth of a second of processor time is gone, at least twice. The dry run only takes memory. */
#define TIME(text, flops, bytes, name, ...)                                                                   \
	do {                                                                                                  \
		struct op_##name op = __VA_ARGS__;                                                            \
		double wall = 1e9, cpu = 1e9, spent = 0;                                                      \
		for (int i = 0; !arena_measuring(&arena) && (i < 2 || spent < 0.1 * threads); i++) {          \
			double w = seconds(CLOCK_MONOTONIC), c = seconds(CLOCK_PROCESS_CPUTIME_ID);           \
			op_##name(dev, &op);                                                                  \
			w = seconds(CLOCK_MONOTONIC) - w, c = seconds(CLOCK_PROCESS_CPUTIME_ID) - c;          \
			wall = w < wall ? w : wall;                                                           \
			cpu = c / threads < cpu ? c / threads : cpu;                                          \
			spent += c;                                                                           \
		}                                                                                             \
		tell(text, wall, cpu, flops, bytes);                                                          \
		arena.used = 0;                                                                               \
	} while (0)

static size_t most; /* bytes of the largest call */

static void tell(const char *text, double wall, double cpu, double flops, double bytes)
{
	if (arena_measuring(&arena)) {
		most = arena.used > most ? arena.used : most;
		return;
	}
	printf("%-34s %9.3f ms %9.3f ms", text, 1e3 * wall, 1e3 * cpu);
	if (flops > 0)
		printf(" %8.1f GFLOP/s %3.0f%%", 1e-9 * flops / cpu, 100 * flops / cpu / dev_peak_flops(dev, type));
	else
		printf(" %8.1f GB/s", 1e-9 * bytes / cpu);
	putchar('\n');
	fflush(stdout);
}

/* Forward x·Wᵀ, dx = dy·W, dW += dyᵀ·x of a linear from k to n features. */
static void linear(const char *name, int64_t k, int64_t n, bool gelu)
{
	const double flops = 2.0 * N * (double)k * (double)n;
	char text[64];
	snprintf(text, sizeof text, "gemm %s forward%s", name, gelu ? " + gelu" : "");
	TIME(text, flops, 0, gemm,
	     {.out = TENSOR(type, N, n), .a = TENSOR(type, N, k), .b = TENSOR(type, n, k), .b_transposed = true,
	      .epilogue = gelu ? GEMM_BIAS_GELU : GEMM_PLAIN, .bias = gelu ? TENSOR(type, n) : (struct tensor){0},
	      .aux = gelu ? TENSOR(type, N, n) : (struct tensor){0}});
	snprintf(text, sizeof text, "gemm %s dx", name);
	TIME(text, flops, 0, gemm, {.out = TENSOR(type, N, k), .a = TENSOR(type, N, n), .b = TENSOR(type, n, k)});
	snprintf(text, sizeof text, "gemm %s dW", name);
	TIME(text, flops, 0, gemm,
	     {.out = TENSOR(F32, n, k), .a = TENSOR(type, N, n), .b = TENSOR(type, N, k), .a_transposed = true,
	      .accumulate = true});
}

static void attention(int64_t batch, int64_t length, double rate)
{
	const double flops = 2.0 * (double)batch * H * (double)length * (double)(length + 1) * D;
	const struct dropout dropout = {.rate = rate, .seed = 1, .site = 1, .span = {.length = length, .sequence = length}};
	const int64_t rows = batch * length;
	char text[64];
	snprintf(text, sizeof text, "attention %d x %d%s forward", (int)batch, (int)length, rate > 0 ? " dropout" : "");
	TIME(text, flops, 0, attention_forward,
	     {.out = TENSOR(type, rows, H, D), .lse = TENSOR(F32, batch, H, length), .qkv = TENSOR(type, rows, H, 3, D),
	      .sequence = length, .scale = 0.125, .dropout = dropout});
	snprintf(text, sizeof text, "attention %d x %d%s backward", (int)batch, (int)length, rate > 0 ? " dropout" : "");
	TIME(text, 2.5 * flops, 0, attention_backward,
	     {.dqkv = TENSOR(type, rows, H, 3, D), .delta = TENSOR(F32, batch, H, length), .dout = TENSOR(type, rows, H, D),
	      .out = TENSOR(type, rows, H, D), .lse = TENSOR(F32, batch, H, length), .qkv = TENSOR(type, rows, H, 3, D),
	      .sequence = length, .scale = 0.125, .dropout = dropout});
}

static void rows(double rate)
{
	const struct dropout dropout = {.rate = rate, .seed = 1, .site = 1, .span = {.length = T, .sequence = T}};
	const double bytes = (double)N * C * (double)dtype_size(type);
	const char *drop = rate > 0 ? " dropout" : "";
	char text[64];
	snprintf(text, sizeof text, "residual_forward%s", drop);
	TIME(text, 0, 4 * bytes, residual_forward,
	     {.sum = TENSOR(type, N, C), .residual = TENSOR(type, N, C), .x = TENSOR(type, N, C), .bias = TENSOR(type, C),
	      .dropout = dropout, .out = TENSOR(type, N, C), .mean = TENSOR(F32, N), .rstd = TENSOR(F32, N),
	      .norm_weight = TENSOR(type, C), .norm_bias = TENSOR(type, C), .epsilon = 1e-5});
	snprintf(text, sizeof text, "residual_backward%s", drop);
	TIME(text, 0, 2 * bytes, residual_backward,
	     {.dx = TENSOR(type, N, C), .dbias = TENSOR(F32, C), .dsum = TENSOR(type, N, C), .dropout = dropout});
}

static void ops(void)
{
	const double element = (double)dtype_size(type), row = (double)N * C * element, logits = (double)N * V * element;
	const struct dropout none = {.span = {.length = T, .sequence = T}};

	linear("qkv", C, 3 * C, false);
	linear("projection", C, C, false);
	linear("mlp up", C, F, true);
	linear("mlp down", F, C, false);
	linear("head", C, V, false);
	attention(B, T, 0);
	attention(B, T, 0.1);
	attention(1, N, 0);
	rows(0);
	rows(0.1);
	TIME("norm_forward", 0, 2 * row, norm_forward,
	     {.out = TENSOR(type, N, C), .mean = TENSOR(F32, N), .rstd = TENSOR(F32, N), .x = TENSOR(type, N, C),
	      .weight = TENSOR(type, C), .bias = TENSOR(type, C), .epsilon = 1e-5});
	TIME("norm_backward", 0, 4 * row, norm_backward,
	     {.dx = TENSOR(type, N, C), .dweight = TENSOR(F32, C), .dbias = TENSOR(F32, C), .dout = TENSOR(type, N, C),
	      .dresidual = TENSOR(type, N, C), .x = TENSOR(type, N, C), .mean = TENSOR(F32, N), .rstd = TENSOR(F32, N),
	      .weight = TENSOR(type, C)});
	TIME("bias_backward", 0, 4 * row, bias_backward, {.dbias = TENSOR(F32, F), .dout = TENSOR(type, N, F)});
	TIME("embedding_forward", 0, 2 * row, embedding_forward,
	     {.out = TENSOR(type, N, C), .tokens = numbers(N, V, false), .table = TENSOR(type, V, C)});
	TIME("embedding_backward", 0, row + 8.0 * N * C, embedding_backward,
	     {.dtable = TENSOR(F32, V, C), .dout = TENSOR(type, N, C), .tokens = numbers(N, V, false),
	      .order = numbers(N, N, true)});
	TIME("position_forward", 0, 2 * row, position_forward,
	     {.out = TENSOR(type, N, C), .x = TENSOR(type, N, C), .table = TENSOR(type, T, C), .dropout = none});
	TIME("position_backward", 0, 2 * row, position_backward,
	     {.dx = TENSOR(type, N, C), .dout = TENSOR(type, N, C), .dtable = TENSOR(F32, T, C), .dropout = none});
	TIME("loss_stats", 0, logits, loss_stats,
	     {.stats = TENSOR(F32, N, 3), .logits = TENSOR(type, N, V), .targets = numbers(N, V, false), .valid = V - 47});
	TIME("loss_backward", 0, 2 * logits, loss_backward,
	     {.logits = TENSOR(type, N, V), .lse = TENSOR(F32, N), .targets = numbers(N, V, false), .valid = V - 47,
	      .sequence = T});
	TIME("add", 0, 3 * row, add, {.y = TENSOR(type, N, C), .x = TENSOR(type, N, C)});
	TIME("convert", 0, ADAM * (element + 4), convert, {.to = TENSOR(type, ADAM), .from = TENSOR(F32, ADAM)});

	struct tensor grad = TENSOR(F32, ADAM);
	TIME("square_sums", 0, 4.0 * ADAM, square_sums,
	     {.sums = arena_1d(&arena, F64, 1), .grads = &grad, .slots = (int64_t[]){0}, .count = 1});
	struct adamw_item item = {.master = TENSOR(F32, ADAM), .m = TENSOR(F32, ADAM), .v = TENSOR(F32, ADAM),
				  .grad = TENSOR(F32, ADAM), .weight = TENSOR(type, ADAM), .decay = true};
	for (int64_t i = 0; !arena_measuring(&arena) && i < ADAM; i++)
		((float *)item.v.data)[i] += 0.5f; /* not below zero */
	TIME("adamw", 0, ADAM * (28 + element), adamw,
	     {.items = &item, .count = 1,
	      .rules = {.lr = 1e-3, .decay_steps = 1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .scale_window = 1,
			.scale_min = 1, .sequence = T, .global_batch = B}});
}

int main(int argc, char **argv)
{
	struct dev_options options = {.threads = 1};
	struct dev_limits limits = {.rows = N, .width = V, .head_size = D, .tensors = 1};
	struct error e;
	void *memory;
	type = F32;
	for (int i = 1; i < argc; i++)
		if (atoi(argv[i]) > 0)
			options.threads = atoi(argv[i]);
		else if (strcmp(argv[i], "fp16") == 0)
			type = F16;
		else if (strcmp(argv[i], "bf16") == 0)
			type = BF16;
		else if (strcmp(argv[i], "fp32") != 0)
			options.instructions = argv[i];
	threads = options.threads;
	arena_measure(&arena, "bench");
	ops();
	if (!dev_open(&dev, &backend_cpu, &options, &e) || !dev_reserve(dev, &limits, &e) || !dev_take(dev, &memory, most, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	arena_init(&arena, "bench", memory, most);
	*dev_scalars(dev) = (struct scalars){.loss_scale = 1, .grad_factor = 1, .lr = 1e-3, .decay = 1e-4, .correction1 = 1,
					     .correction2 = 1};
	printf("%s, %s, peak %.1f GFLOP/s\n%-34s %12s %12s\n", dev_name(dev), dtype_name(type),
	       1e-9 * dev_peak_flops(dev, type), "", "wall", "cpu");
	ops();
	dev_give_back(dev, memory);
	dev_close(dev);
	return 0;
}

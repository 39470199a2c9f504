#include "plan/calibrate_bench.h"

#include <math.h>

static struct tensor matrix(struct calibrate_bench *b, enum dtype t, int64_t rows, int64_t columns)
{
	return arena_2d(&b->arena, t, rows, columns);
}

static struct tensor vector(struct calibrate_bench *b, enum dtype t, int64_t n)
{
	return arena_1d(&b->arena, t, n);
}

static struct hardware_curve *curve(struct calibrate_bench *b, enum dtype t, enum op_id op)
{
	return &b->h->op[hardware_type(t)][op];
}

/* What was taken since `before` becomes zeros: what another type left there may be no number. */
static void clean(struct calibrate_bench *b, size_t before)
{
	char *begin = b->arena.base;
	dev_zero(b->dev, Q_COMPUTE, tensor_1d(begin + before, U8, (int64_t)(b->arena.used - before)));
}

/* The three products of a linear [n, k] in a step of m rows, as one rate. As in a step, each finds its operands in memory, not
 * where the one before has left them: they are other ones each time. */
static void products(struct calibrate_bench *b, enum dtype t, int64_t m, int64_t n, int64_t k)
{
	enum { SETS = 64, BYTES = 64 << 20 }; /* more than caches hold */
	size_t before = b->arena.used;
	struct op_gemm f[SETS], i[SETS], g[SETS];
	double forward, input, weight, flops = 2 * (double)m * (double)n * (double)k;
	int sets = 0, at = 0;
	for (; sets < SETS && (sets < 2 || b->arena.used - before < BYTES); sets++) {
		struct tensor x = matrix(b, t, m, k), y = matrix(b, t, m, n), w = matrix(b, t, n, k), bias = vector(b, t, n);
		struct tensor dw = matrix(b, dtype_sum(t), n, k);
		f[sets] = (struct op_gemm){.out = y, .a = x, .b = w, .b_transposed = true, .epilogue = GEMM_BIAS, .bias = bias};
		i[sets] = (struct op_gemm){.out = x, .a = y, .b = w};
		g[sets] = (struct op_gemm){.out = dw, .a = y, .a_transposed = true, .b = x, .accumulate = true};
	}
	clean(b, before);
	CALIBRATE_TIME(b, forward, op_gemm(b->dev, &f[at++ % sets]));
	CALIBRATE_TIME(b, input, op_gemm(b->dev, &i[at++ % sets]));
	CALIBRATE_TIME(b, weight, op_gemm(b->dev, &g[at++ % sets]));
	calibrate_point(&b->h->gemm[hardware_type(t)], flops, 3 * flops / (forward + input + weight) * 1e-12);
	b->arena.used = before;
}

/* Times op `name` as `a` says and adds its rate over `size`, which is flops or bytes of its cost. */
#define RATE(name, size, unit)                                                                          \
	do {                                                                                            \
		struct op_cost cost = op_cost_##name(&a);                                               \
		double seconds;                                                                         \
		CALIBRATE_TIME(b, seconds, op_##name(b->dev, &a));                                      \
		calibrate_point(curve(b, t, OP_##name), cost.size, cost.size / seconds * (unit));       \
	} while (0)
#define BY_BYTES(name, ...)                                  \
	do {                                                 \
		struct op_##name a = {__VA_ARGS__};          \
		RATE(name, bytes, 1e-9);                     \
	} while (0)

static void attention(struct calibrate_bench *b, enum dtype t, int64_t samples, int64_t sequence, int64_t heads)
{
	enum { D = CALIBRATE_HEAD };
	size_t before = b->arena.used;
	int64_t N = samples * sequence, qkv[] = {N, heads, 3, D}, out[] = {N, heads, D}, lse[] = {samples, heads, sequence};
	struct tensor q = arena_tensor(&b->arena, t, 4, qkv), dq = arena_tensor(&b->arena, t, 4, qkv);
	struct tensor o = arena_tensor(&b->arena, t, 3, out), d = arena_tensor(&b->arena, t, 3, out);
	struct tensor l = arena_tensor(&b->arena, dtype_sum(t), 3, lse), delta = arena_tensor(&b->arena, dtype_sum(t), 3, lse);
	double scale = 1 / sqrt((double)D);
	clean(b, before);
	{
		struct op_attention_forward a = {.out = o, .lse = l, .qkv = q, .sequence = sequence, .scale = scale};
		RATE(attention_forward, flops, 1e-12);
	}
	{
		struct op_attention_backward a = {.dqkv = dq, .delta = delta, .dout = d, .out = o, .lse = l, .qkv = q,
						  .sequence = sequence, .scale = scale};
		RATE(attention_backward, flops, 1e-12);
	}
	b->arena.used = before;
}

/* Norms, residuals and the MLP's elements of N rows of C. */
static void rows(struct calibrate_bench *b, enum dtype t, int64_t N, int64_t C)
{
	size_t before = b->arena.used;
	enum dtype s = dtype_sum(t);
	struct tensor x = matrix(b, t, N, C), y = matrix(b, t, N, C), z = matrix(b, t, N, C), wide = matrix(b, t, N, 2 * C);
	struct tensor dwide = matrix(b, t, N, 2 * C), weight = vector(b, t, C), bias = vector(b, t, C);
	struct tensor mean = vector(b, s, N), rstd = vector(b, s, N), dweight = vector(b, s, C), dbias = vector(b, s, C);
	clean(b, before);
	BY_BYTES(norm_forward, .out = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .epsilon = 1e-5);
	BY_BYTES(norm_backward, .dx = z, .dweight = dweight, .dbias = dbias, .dout = y, .x = x, .mean = mean, .rstd = rstd, .weight = weight);
	BY_BYTES(residual_forward, .sum = y, .residual = x, .x = z, .bias = bias);
	BY_BYTES(residual_backward, .dx = y, .dbias = dbias, .dsum = x);
	BY_BYTES(gelu_forward, .out = y, .x = x);
	BY_BYTES(swiglu_forward, .out = y, .x = wide);
	BY_BYTES(swiglu_backward, .dx = dwide, .dout = y, .x = wide);
	BY_BYTES(bias_backward, .dbias = dbias, .dout = y);
	BY_BYTES(add, .y = y, .x = x);
	b->arena.used = before;
}

/* The ends of the model: tables of V rows, N tokens. */
static void ends(struct calibrate_bench *b, enum dtype t, int64_t N, int64_t C, int64_t V)
{
	size_t before = b->arena.used;
	enum dtype s = dtype_sum(t);
	struct tensor x = matrix(b, t, N, C), table = matrix(b, t, V, C), dtable = matrix(b, s, V, C), logits = matrix(b, t, N, V);
	struct tensor ids = vector(b, I32, N), lse = vector(b, s, N), losses = vector(b, s, N), totals = vector(b, F64, 2);
	int64_t shape[] = {1, N, 3};
	struct tensor stats = matrix(b, s, N, 3), all = tensor_of(stats.data, s, 3, shape);
	int32_t each[CALIBRATE_ROWS]; /* every token another one, in order */
	check(N <= CALIBRATE_ROWS && N <= V);
	for (int32_t i = 0; i < (int32_t)N; i++)
		each[i] = i;
	clean(b, before);
	dev_write(b->dev, Q_COMPUTE, ids, each);
	dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));
	BY_BYTES(embedding_forward, .out = x, .tokens = ids, .table = table);
	BY_BYTES(embedding_backward, .dtable = dtable, .dout = x, .tokens = ids, .order = ids);
	BY_BYTES(loss_stats, .stats = stats, .logits = logits, .targets = ids, .valid = V);
	BY_BYTES(loss_combine, .lse = lse, .losses = losses, .stats = all, .targets = ids);
	BY_BYTES(loss_backward, .logits = logits, .lse = lse, .targets = ids, .valid = V, .sequence = N);
	BY_BYTES(loss_total, .totals = totals, .losses = losses, .targets = ids);
	b->arena.used = before;
}

static void positions(struct calibrate_bench *b, enum dtype t, int64_t N, int64_t C)
{
	size_t before = b->arena.used;
	struct tensor x = matrix(b, t, N, C), table = matrix(b, t, N, C), dtable = matrix(b, dtype_sum(t), N, C);
	clean(b, before);
	struct span span = {.length = N, .sequence = N};
	BY_BYTES(position_forward, .out = x, .x = x, .table = table, .dropout = {.span = span});
	BY_BYTES(position_backward, .dx = x, .dout = x, .dtable = dtable, .dropout = {.span = span});
	b->arena.used = before;
}

/* The optimizer's ops, over n elements of parameters; the sums' type is the op's. */
static void update(struct calibrate_bench *b, enum dtype weights, int64_t n)
{
	size_t before = b->arena.used;
	const enum dtype t = F32; /* these are timed as ops on masters and gradients */
	struct tensor list[4], sums = vector(b, F64, 1);
	const int64_t slots[] = {0};
	for (int i = 0; i < 4; i++)
		list[i] = vector(b, F32, n);
	clean(b, before);
	struct adamw_item item = {.master = list[0], .m = list[1], .v = list[2], .grad = list[3], .decay = true};
	item.weight = vector(b, weights, n);
	struct step_rules rules = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay_steps = 1,
				   .scale_min = 1, .scale_window = 1, .sequence = 1, .global_batch = 1};
	BY_BYTES(adamw, .items = &item, .count = 1, .rules = rules);
	BY_BYTES(square_sums, .sums = sums, .grads = &list[3], .slots = slots, .count = 1);
	b->arena.used = before;
}

void calibrate_ops(struct calibrate_bench *b, enum dtype t)
{
	products(b, t, 64, 64, 64);
	products(b, t, 128, 128, 128);
	products(b, t, 256, 256, 256);
	products(b, t, 512, 512, 512);
	products(b, t, 1024, 768, 768);
	products(b, t, 1024, 1536, 1536);
	attention(b, t, 4, 64, 2);
	attention(b, t, 2, 256, 4);
	attention(b, t, 1, 1024, 8);
	rows(b, t, 128, 128);
	rows(b, t, 512, 512);
	rows(b, t, 2048, 1024);
	ends(b, t, 128, 128, 512);
	ends(b, t, 512, 512, 4096);
	positions(b, t, 128, 128);
	positions(b, t, 1024, 1024);
	if (t != F32)
		return;
	update(b, F16, 1 << 14);
	update(b, F16, 1 << 18);
	update(b, F16, 1 << 22);
}

#include "plan/calibrate_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

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

/* What was taken since `before` becomes zeros: what another type left there may be no number. False: it is only measured. */
static bool clean(struct calibrate_bench *b, size_t before)
{
	char *begin = b->arena.base;
	if (arena_measuring(&b->arena))
		return false;
	dev_zero(b->dev, Q_COMPUTE, tensor_1d(begin + before, U8, (int64_t)(b->arena.used - before)));
	return true;
}

/* Numbers in (−s, s), since a card is faster on zeros than on a model's numbers. */
static void scatter(struct calibrate_bench *b, struct tensor t, double s)
{
	enum { BLOCK = 1 << 12 };
	uint8_t block[BLOCK * sizeof(float)];
	int64_t count = tensor_count(t), done = count < BLOCK ? count : BLOCK;
	size_t size = dtype_size(t.dtype);
	for (uint32_t i = 0; i < BLOCK; i += 4) {
		struct philox r = philox(1, (struct philox){{i}});
		for (uint32_t k = 0; k < 4; k++) {
			float f = (float)(s * ((double)r.word[k] * 0x1p-31 - 1));
			uint16_t half = t.dtype == F16 ? fp16_from_float(f) : bf16_from_float(f);
			memcpy(block + (i + k) * size, size == 2 ? (void *)&half : (void *)&f, size);
		}
	}
	struct tensor flat = tensor_1d(t.data, t.dtype, count);
	dev_write(b->dev, Q_COMPUTE, tensor_rows(flat, 0, done), block);
	for (int64_t more; done < count; done += more) {
		more = count - done < done ? count - done : done;
		dev_copy(b->dev, Q_COMPUTE, tensor_rows(flat, done, more), tensor_rows(flat, 0, more));
	}
	dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));
}

/* m, n, k: the three products of a linear [n, k] in a step of m rows, as one rate. As in a step, each finds its operands in memory,
 * not where the one before has left them: they are other ones each time. */
static void products(struct calibrate_bench *b, enum dtype t, const int64_t *d)
{
	enum { SETS = 64 };
	int64_t m = d[0], n = d[1], k = d[2];
	size_t before = b->arena.used, bytes = (size_t)(b->h->cpu ? 64 : 256) << 20; /* more than caches hold */
	struct op_gemm f[SETS], i[SETS], g[SETS];
	double forward, input, weight, flops = 2 * (double)m * (double)n * (double)k;
	int sets = 0, at = 0;
	for (; sets < SETS && (sets < 2 || b->arena.used - before < bytes); sets++) {
		size_t begin = b->arena.used;
		struct tensor x = matrix(b, t, m, k), y = matrix(b, t, m, n), w = matrix(b, t, n, k), bias = vector(b, t, n);
		struct tensor dw = matrix(b, dtype_sum(t), n, k);
		f[sets] = (struct op_gemm){.out = y, .a = x, .b = w, .b_transposed = true, .epilogue = GEMM_BIAS, .bias = bias};
		i[sets] = (struct op_gemm){.out = x, .a = y, .b = w};
		g[sets] = (struct op_gemm){.out = dw, .a = y, .a_transposed = true, .b = x, .accumulate = true};
		if (!clean(b, begin))
			continue;
		scatter(b, x, 1);
		scatter(b, w, sqrt(3 / (double)(n > k ? n : k))); /* so that outputs are as large as inputs, or smaller */
	}
	if (arena_measuring(&b->arena))
		return;
	CALIBRATE_TIME(b, forward, op_gemm(b->dev, &f[at++ % sets]));
	CALIBRATE_TIME(b, input, op_gemm(b->dev, &i[at++ % sets]));
	CALIBRATE_TIME(b, weight, op_gemm(b->dev, &g[at++ % sets]));
	calibrate_point(&b->h->gemm[hardware_type(t)], flops, 3 * flops / (forward + input + weight) * 1e-12);
	b->longest = fmax(forward, fmax(input, weight));
	b->arena.used = before;
}

/* Times op `name` as `a` says and adds its rate over `size`, which is flops or bytes of its cost. */
#define RATE(name, size, unit)                                                                          \
	do {                                                                                            \
		struct op_cost cost = op_cost_##name(&a);                                               \
		double seconds;                                                                         \
		CALIBRATE_TIME(b, seconds, op_##name(b->dev, &a));                                      \
		b->longest = fmax(b->longest, seconds);                                                 \
		calibrate_point(curve(b, t, OP_##name), cost.size, cost.size / seconds * (unit));       \
	} while (0)
#define BY_BYTES(name, ...)                                  \
	do {                                                 \
		struct op_##name a = {__VA_ARGS__};          \
		RATE(name, bytes, 1e-9);                     \
	} while (0)

/* Samples, tokens of each, heads, their size. */
static void attention(struct calibrate_bench *b, enum dtype t, const int64_t *d)
{
	int64_t samples = d[0], sequence = d[1], heads = d[2], D = d[3];
	size_t before = b->arena.used;
	int64_t N = samples * sequence, qkv[] = {N, heads, 3, D}, out[] = {N, heads, D}, lse[] = {samples, heads, sequence};
	struct tensor q = arena_tensor(&b->arena, t, 4, qkv), dq = arena_tensor(&b->arena, t, 4, qkv);
	struct tensor o = arena_tensor(&b->arena, t, 3, out), dout = arena_tensor(&b->arena, t, 3, out);
	struct tensor l = arena_tensor(&b->arena, dtype_sum(t), 3, lse), delta = arena_tensor(&b->arena, dtype_sum(t), 3, lse);
	double scale = 1 / sqrt((double)D);
	if (!clean(b, before))
		return;
	scatter(b, q, 1);
	scatter(b, dout, 1);
	{
		struct op_attention_forward a = {.out = o, .lse = l, .qkv = q, .sequence = sequence, .scale = scale};
		RATE(attention_forward, flops, 1e-12);
	}
	{
		struct op_attention_backward a = {.dqkv = dq, .delta = delta, .dout = dout, .out = o, .lse = l, .qkv = q,
						  .sequence = sequence, .scale = scale};
		RATE(attention_backward, flops, 1e-12);
	}
	b->arena.used = before;
}

/* Norms, residuals and the MLP's elements of N rows of C. */
static void rows(struct calibrate_bench *b, enum dtype t, const int64_t *d)
{
	int64_t N = d[0], C = d[1];
	size_t before = b->arena.used;
	enum dtype s = dtype_sum(t);
	struct tensor x = matrix(b, t, N, C), y = matrix(b, t, N, C), z = matrix(b, t, N, C), wide = matrix(b, t, N, 2 * C);
	struct tensor dwide = matrix(b, t, N, 2 * C), weight = vector(b, t, C), bias = vector(b, t, C);
	struct tensor mean = vector(b, s, N), rstd = vector(b, s, N), dweight = vector(b, s, C), dbias = vector(b, s, C);
	if (!clean(b, before))
		return;
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

/* The ends of the model: N tokens, C wide, tables of V rows. */
static void ends(struct calibrate_bench *b, enum dtype t, const int64_t *d)
{
	int64_t N = d[0], C = d[1], V = d[2];
	size_t before = b->arena.used;
	enum dtype s = dtype_sum(t);
	struct tensor x = matrix(b, t, N, C), table = matrix(b, t, V, C), dtable = matrix(b, s, V, C), logits = matrix(b, t, N, V);
	struct tensor ids = vector(b, I32, N), lse = vector(b, s, N), losses = vector(b, s, N), totals = vector(b, F64, 2);
	int64_t shape[] = {1, N, 3};
	struct tensor stats = matrix(b, s, N, 3), all = tensor_of(stats.data, s, 3, shape);
	if (!clean(b, before))
		return;
	int32_t *each = malloc((size_t)N * sizeof *each); /* every token another one, in order */
	check(each && N <= V);
	for (int32_t i = 0; i < (int32_t)N; i++)
		each[i] = i;
	dev_write(b->dev, Q_COMPUTE, ids, each);
	dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));
	free(each);
	BY_BYTES(embedding_forward, .out = x, .tokens = ids, .table = table);
	BY_BYTES(embedding_backward, .dtable = dtable, .dout = x, .tokens = ids, .order = ids);
	BY_BYTES(loss_stats, .stats = stats, .logits = logits, .targets = ids, .valid = V);
	BY_BYTES(loss_combine, .lse = lse, .losses = losses, .stats = all, .targets = ids);
	BY_BYTES(loss_backward, .logits = logits, .lse = lse, .targets = ids, .valid = V, .sequence = N);
	BY_BYTES(loss_total, .totals = totals, .losses = losses, .targets = ids);
	b->arena.used = before;
}

static void positions(struct calibrate_bench *b, enum dtype t, const int64_t *d)
{
	int64_t N = d[0], C = d[1];
	size_t before = b->arena.used;
	struct tensor x = matrix(b, t, N, C), table = matrix(b, t, N, C), dtable = matrix(b, dtype_sum(t), N, C);
	if (!clean(b, before))
		return;
	struct span span = {.length = N, .sequence = N};
	BY_BYTES(position_forward, .out = x, .x = x, .table = table, .dropout = {.span = span});
	BY_BYTES(position_backward, .dx = x, .dout = x, .dtable = dtable, .dropout = {.span = span});
	b->arena.used = before;
}

/* The optimizer's ops, over n elements of parameters, whose weights are FP16. Timed as ops on masters and gradients: t is F32. */
static void update(struct calibrate_bench *b, enum dtype t, const int64_t *d)
{
	int64_t n = d[0];
	size_t before = b->arena.used;
	struct tensor list[4], sums = vector(b, F64, 1);
	const int64_t slots[] = {0};
	for (int i = 0; i < 4; i++)
		list[i] = vector(b, F32, n);
	if (!clean(b, before))
		return;
	struct adamw_item item = {.master = list[0], .m = list[1], .v = list[2], .grad = list[3], .decay = true};
	item.weight = vector(b, F16, n);
	struct step_rules rules = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay_steps = 1,
				   .scale_min = 1, .scale_window = 1, .sequence = 1, .global_batch = 1};
	BY_BYTES(adamw, .items = &item, .count = 1, .rules = rules);
	BY_BYTES(square_sums, .sums = sums, .grads = &list[3], .slots = slots, .count = 1);
	b->arena.used = before;
}

/* Sizes of one kind of work, ascending; those that fill a card are no use on a processor. */
struct size {
	int64_t d[4];
	bool card;
};

static double work(const struct size *s)
{
	double all = 1;
	for (int i = 0; i < 4; i++)
		all *= s->d[i] ? (double)s->d[i] : 1;
	return all;
}

static size_t bytes_of(struct calibrate_bench *b, enum dtype t, void (*time)(struct calibrate_bench *, enum dtype, const int64_t *),
		       const struct size *size)
{
	struct calibrate_bench measuring = *b;
	arena_measure(&measuring.arena, "calibration");
	time(&measuring, t, size->d);
	return measuring.arena.used;
}

/* Times the sizes in turn, until one would take too long, or more memory than there is. */
static void grow(struct calibrate_bench *b, enum dtype t, void (*time)(struct calibrate_bench *, enum dtype, const int64_t *),
		 const struct size *sizes, int count)
{
	static const double enough = 0.1; /* seconds of one op */
	for (int i = 0; i < count && !(sizes[i].card && b->h->cpu); i++) {
		if (i > 0 && b->longest * work(&sizes[i]) / work(&sizes[i - 1]) > enough)
			return;
		if (bytes_of(b, t, time, &sizes[i]) > b->arena.capacity - b->arena.used)
			return;
		b->longest = 0;
		time(b, t, sizes[i].d);
	}
}
#define ANY(...) {.d = {__VA_ARGS__}}
#define CARD(...) {.d = {__VA_ARGS__}, .card = true}
#define GROW(b, t, time, ...)                                                     \
	do {                                                                      \
		static const struct size sizes[] = {__VA_ARGS__};                 \
		grow(b, t, time, sizes, sizeof sizes / sizeof *sizes);            \
	} while (0)

void calibrate_ops(struct calibrate_bench *b, enum dtype t)
{
	GROW(b, t, products, ANY(64, 64, 64), ANY(128, 128, 128), ANY(256, 256, 256), ANY(512, 512, 512), ANY(1024, 768, 768), ANY(1024, 1536, 1536),
	     CARD(2048, 4096, 4096), CARD(4096, 4096, 4096), CARD(8192, 8192, 8192));
	GROW(b, t, attention, ANY(4, 64, 2, 64), ANY(2, 256, 4, 64), ANY(1, 1024, 8, 64), CARD(4, 2048, 16, 128), CARD(2, 4096, 32, 128));
	GROW(b, t, rows, ANY(128, 128), ANY(512, 512), ANY(2048, 1024), CARD(8192, 4096), CARD(CALIBRATE_ROWS, 6144));
	GROW(b, t, ends, ANY(128, 128, 512), ANY(512, 512, 4096), CARD(8192, 4096, CALIBRATE_WIDTH));
	GROW(b, t, positions, ANY(128, 128), ANY(1024, 1024), CARD(CALIBRATE_ROWS, 4096));
	if (t == F32)
		GROW(b, t, update, ANY(1 << 14), ANY(1 << 18), ANY(1 << 22), CARD(1 << 26));
}

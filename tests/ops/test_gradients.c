/* The plain backward ops in FP64 against central differences of the forward ops.
 *
 * With weights w on what forward writes, L = Σ w·out; backward is given w as its dout and must give dL/d(input). A
 * difference over ±h and one over ±2h together give the slope and a bound on what is wrong with it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cases.h"
#include "dev/cpu/cpu.h"

static struct bench bench;

/* Slopes of `loss` along each of x[count] against dx. */
static void check_slopes(const char *text, double *x, const double *dx, int64_t count, double (*loss)(void *), void *context)
{
	double *slopes = calloc((size_t)count, sizeof *slopes), scale = 0, doubt = 0;
	const double h = 1e-3;
	for (int64_t i = 0; i < count; i++) {
		double before = x[i], at[4];
		for (int k = 0; k < 4; k++) {
			x[i] = before + h * (double[]){1, -1, 2, -2}[k];
			at[k] = loss(context);
		}
		x[i] = before;
		double near = (at[0] - at[1]) / (2 * h), far = (at[2] - at[3]) / (4 * h);
		slopes[i] = (4 * near - far) / 3;
		doubt = fmax(doubt, fabs(near - far));
		scale = fmax(scale, fabs(slopes[i]));
	}
	for (int64_t i = 0; i < count; i++)
		if (!(fabs(slopes[i] - dx[i]) <= doubt + 1e-9 * scale))
			fail_msg("%s[%lld] is %.12g, differences give %.12g, to be trusted to %.3g", text, (long long)i, dx[i],
				 slopes[i], doubt + 1e-9 * scale);
	free(slopes);
}

struct link {
	const char *forward, *backward;
};

/* A forward op and its backward op. Of the variant bits of backward, those of `common` are forward's too. */
static const struct pair {
	const char *name;
	builder *forward, *backward;
	unsigned variants, common;
	int64_t sizes[3][SIZE_DIMS];
	struct link weights[2]; /* what L looks at ↔ the weights of it */
	struct link slopes[3];  /* inputs ↔ their gradients; those that the variant leaves out are skipped */
} pairs[] = {
	{"embedding", case_embedding_forward, case_embedding_backward, 1, 0, {{1, 1, 1}, {7, 3, 4}, {20, 2, 3}},
	 {{"out", "dout"}}, {{"table", "dtable"}}},
	{"position", case_position_forward, case_position_backward, 8, POSITION_TABLE | POSITION_DROPOUT,
	 {{1, 1, 1}, {2, 3, 5}, {3, 2, 4}}, {{"out", "dout"}}, {{"x", "dx"}, {"table", "dtable"}}},
	{"norm", case_norm_forward, case_norm_backward, 16, NORM_IS_RMS | NORM_NO_BIAS, {{1, 2}, {3, 5}, {4, 17}},
	 {{"out", "dout"}, {"x", "dresidual"}}, {{"x", "dx"}, {"weight", "dweight"}, {"bias", "dbias"}}},
	{"residual", case_residual_forward, case_residual_backward, 16, RESIDUAL_BIAS | RESIDUAL_DROPOUT,
	 {{1, 1, 1}, {2, 3, 5}, {3, 2, 4}}, {{"sum", "dsum"}}, {{"x", "dx"}, {"bias", "dbias"}}},
	{"swiglu", case_swiglu_forward, case_swiglu_backward, 1, 0, {{1, 1}, {3, 5}, {4, 17}}, {{"out", "dout"}}, {{"x", "dx"}}},
	{"unit rows", case_unit_rows_forward, case_unit_rows_backward, 1, 0, {{1, 2}, {1, 5}, {1, 17}}, {{"out", "dout"}},
	 {{"x", "dx"}}},
	{"attention", case_attention_forward, case_attention_backward, ATTENTION_VARIANTS, ATTENTION_DROPOUT | ATTENTION_SLOPES,
	 {{1, 1, 1, 1, 1}, {2, 5, 2, 2, 3}, {1, 9, 1, 1, 4}}, {{"out", "dout"}}, {{"qkv", "dqkv"}}},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

struct run {
	const struct pair *pair;
	struct call forward, backward;
};

static double weighted(void *context)
{
	struct run *run = context;
	double sum = 0;
	call_run(&bench, &run->forward, 0);
	for (int i = 0; i < 2 && run->pair->weights[i].forward; i++) {
		struct arg *w = call_find(&run->backward, run->pair->weights[i].backward);
		struct arg *y = call_find(&run->forward, run->pair->weights[i].forward);
		for (int64_t k = 0; w && k < w->count; k++)
			sum += w->values[k] * (y->role == IN ? y->values[k] : y->result[k]);
	}
	return sum;
}

static void check_pair(void **state)
{
	const struct pair *pair = *state;
	struct run run = {.pair = pair};
	for (int size = 0; size < 3; size++)
		for (unsigned variant = 0; variant < pair->variants; variant++) {
			if (!case_build(&run.backward, pair->backward, F64, F64, pair->sizes[size], variant))
				continue;
			case_build(&run.forward, pair->forward, F64, F64, pair->sizes[size], variant & pair->common);
			call_run(&bench, &run.backward, 0);
			for (int i = 0; i < 3 && pair->slopes[i].forward; i++) {
				struct arg *x = call_find(&run.forward, pair->slopes[i].forward);
				struct arg *dx = call_find(&run.backward, pair->slopes[i].backward);
				if (!x || !dx)
					continue;
				if (dx->role == INOUT && !dx->same) /* added to */
					for (int64_t k = 0; k < dx->count; k++)
						dx->result[k] -= dx->values[k];
				char text[96];
				snprintf(text, sizeof text, "size %d variant %u: %s", size, variant, dx->name);
				check_slopes(text, x->values, dx->result, x->count, weighted, &run);
			}
			call_finish(&run.forward);
			call_finish(&run.backward);
		}
}

/* The rest works on host memory, where the CPU's ops compute. */
static void fill(double *x, int64_t count, const char *name)
{
	for (int64_t i = 0; i < count; i++)
		x[i] = (double)call_draw(name, i, 2001) / 1000 - 1;
}

static struct tensor matrix(double *x, int64_t rows, int64_t columns)
{
	return tensor_2d(x, F64, rows, columns);
}

enum { M = 4, K = 3, N = 5 };
struct layer {
	double x[M * K], weight[N * K], bias[N], w[M * N], y[M * N], aux[M * N];
	double dpre[M * N], dx[M * K], dweight[N * K], dbias[N];
	enum gelu_kind gelu;
};

/* y = gelu(x·weightᵀ + bias). */
static double layer_loss(void *context)
{
	struct layer *l = context;
	double sum = 0;
	op_gemm(bench.dev, &(struct op_gemm){.out = matrix(l->y, M, N), .a = matrix(l->x, M, K), .b = matrix(l->weight, N, K),
					     .b_transposed = true, .epilogue = GEMM_BIAS_GELU,
					     .bias = tensor_1d(l->bias, F64, N), .aux = matrix(l->aux, M, N), .gelu = l->gelu});
	for (int i = 0; i < M * N; i++)
		sum += l->w[i] * l->y[i];
	return sum;
}

/* A linear layer with GELU as the model runs it: DGELU on the way back, weight and bias gradients added up. */
static void check_layer(void **state)
{
	for (int kind = GELU_TANH; kind <= GELU_ERF; kind++) {
		struct layer l = {.gelu = (enum gelu_kind)kind};
		double identity[N * N] = {0};
		for (int i = 0; i < N; i++)
			identity[i * N + i] = 1;
		fill(l.x, M * K, "x");
		fill(l.weight, N * K, "weight");
		fill(l.bias, N, "bias");
		fill(l.w, M * N, "w");
		layer_loss(&l);
		op_gemm(bench.dev, &(struct op_gemm){.out = matrix(l.dpre, M, N), .a = matrix(l.w, M, N),
						     .b = matrix(identity, N, N), .epilogue = GEMM_DGELU,
						     .aux = matrix(l.aux, M, N), .gelu = l.gelu});
		op_gemm(bench.dev, &(struct op_gemm){.out = matrix(l.dx, M, K), .a = matrix(l.dpre, M, N),
						     .b = matrix(l.weight, N, K)});
		op_gemm(bench.dev, &(struct op_gemm){.out = matrix(l.dweight, N, K), .a = matrix(l.dpre, M, N),
						     .a_transposed = true, .b = matrix(l.x, M, K), .accumulate = true});
		op_bias_backward(bench.dev, &(struct op_bias_backward){.dbias = tensor_1d(l.dbias, F64, N),
								       .dout = matrix(l.dpre, M, N)});
		check_slopes("dx", l.x, l.dx, M * K, layer_loss, &l);
		check_slopes("dweight", l.weight, l.dweight, N * K, layer_loss, &l);
		check_slopes("dbias", l.bias, l.dbias, N, layer_loss, &l);
	}
}

static double gelu_loss(void *context)
{
	struct layer *l = context;
	double sum = 0;
	op_gelu_forward(bench.dev, &(struct op_gelu_forward){.out = matrix(l->y, M, N), .x = matrix(l->aux, M, N), .gelu = l->gelu});
	for (int i = 0; i < M * N; i++)
		sum += l->w[i] * l->y[i];
	return sum;
}

/* The GELU alone has DGELU for its backward. */
static void check_gelu(void **state)
{
	for (int kind = GELU_TANH; kind <= GELU_ERF; kind++) {
		struct layer l = {.gelu = (enum gelu_kind)kind};
		double identity[N * N] = {0};
		for (int i = 0; i < N; i++)
			identity[i * N + i] = 1;
		fill(l.aux, M * N, "aux");
		fill(l.w, M * N, "w");
		op_gemm(bench.dev, &(struct op_gemm){.out = matrix(l.dpre, M, N), .a = matrix(l.w, M, N),
						     .b = matrix(identity, N, N), .epilogue = GEMM_DGELU,
						     .aux = matrix(l.aux, M, N), .gelu = l.gelu});
		check_slopes("dpre", l.aux, l.dpre, M * N, gelu_loss, &l);
	}
}

static double rope_loss(void *context)
{
	struct run *run = context;
	struct arg *w = call_find(&run->backward, "qkv"), *y = call_find(&run->forward, "qkv");
	double sum = 0;
	call_run(&bench, &run->forward, 0);
	for (int64_t i = 0; i < w->count; i++)
		sum += w->values[i] * y->result[i];
	return sum;
}

/* A rotation's backward is its inverse, which undoes it too. */
static void check_rope(void **state)
{
	static const int64_t sizes[][SIZE_DIMS] = {{1, 1, 1, 1, 2}, {2, 3, 2, 3, 6}, {1, 4, 1, 2, 5}};
	for (unsigned which = 0; which < 6; which++) {
		struct run run;
		unsigned part = which % 2 ? ROPE_PART : 0;
		if (!case_build(&run.forward, case_rope, F64, F64, sizes[which / 2], part))
			continue;
		case_build(&run.backward, case_rope, F64, F64, sizes[which / 2], part | ROPE_INVERSE);
		struct arg *x = call_find(&run.forward, "qkv"), *back = call_find(&run.backward, "qkv");
		for (int64_t i = 0; i < back->count; i++)
			back->values[i] = cos((double)i);
		call_run(&bench, &run.backward, 0);
		check_slopes("qkv", x->values, back->result, x->count, rope_loss, &run);
		call_run(&bench, &run.forward, 0);
		memcpy(back->values, x->result, (size_t)x->count * sizeof(double));
		call_run(&bench, &run.backward, 0);
		for (int64_t i = 0; i < x->count; i++)
			assert_true(fabs(back->result[i] - x->values[i]) < 1e-14);
		call_finish(&run.forward);
		call_finish(&run.backward);
	}
}

/* A vocabulary of 11 over 4 shards of 5 columns: the third has one true column, the fourth none. */
enum { SHARDS = 4, COLUMNS = 5, TRUE = 11, ROWS = 6 };
static int32_t targets[ROWS] = {0, 4, 10, -1, 7, 5};
struct head {
	double logits[SHARDS][ROWS * COLUMNS], stats[SHARDS * ROWS * 3], lse[ROWS], losses[ROWS];
	double factor; /* loss scale / sequence */
};

static int64_t valid_in(int shard)
{
	int64_t rest = TRUE - shard * COLUMNS;
	return rest < 0 ? 0 : rest < COLUMNS ? rest : COLUMNS;
}

static double head_loss(void *context)
{
	struct head *h = context;
	struct tensor t = tensor_1d(targets, I32, ROWS);
	double sum = 0;
	for (int s = 0; s < SHARDS; s++)
		op_loss_stats(bench.dev, &(struct op_loss_stats){.stats = matrix(h->stats + s * ROWS * 3, ROWS, 3),
								 .logits = matrix(h->logits[s], ROWS, COLUMNS), .targets = t,
								 .first = s * COLUMNS, .valid = valid_in(s)});
	op_loss_combine(bench.dev, &(struct op_loss_combine){
		.lse = tensor_1d(h->lse, F64, ROWS), .losses = tensor_1d(h->losses, F64, ROWS),
		.stats = tensor_of(h->stats, F64, 3, (int64_t[]){SHARDS, ROWS, 3}), .targets = t});
	for (int n = 0; n < ROWS; n++)
		sum += h->losses[n] * h->factor;
	return sum;
}

static void check_head(void **state)
{
	struct head h = {.factor = 512.0 / 8}, gradient;
	struct scalars scalars = {.loss_scale = 512};
	dev_write_scalars(bench.dev, Q_COMPUTE, &scalars);
	for (int s = 0; s < SHARDS; s++) {
		char name[] = {'s', (char)('0' + s), 0};
		fill(h.logits[s], ROWS * COLUMNS, name);
	}
	head_loss(&h);
	for (int n = 0; n < ROWS; n++) {
		double sum = 0, right = 0;
		for (int v = 0; v < TRUE; v++)
			sum += exp(h.logits[v / COLUMNS][n * COLUMNS + v % COLUMNS]);
		if (targets[n] >= 0)
			right = log(sum) - h.logits[targets[n] / COLUMNS][n * COLUMNS + targets[n] % COLUMNS];
		if (fabs(h.losses[n] - right) > 1e-14)
			fail_msg("loss of row %d is %.17g, directly it is %.17g", n, h.losses[n], right);
	}
	gradient = h;
	for (int s = 0; s < SHARDS; s++) {
		char text[16];
		op_loss_backward(bench.dev, &(struct op_loss_backward){
			.logits = matrix(gradient.logits[s], ROWS, COLUMNS), .lse = tensor_1d(gradient.lse, F64, ROWS),
			.targets = tensor_1d(targets, I32, ROWS), .first = s * COLUMNS, .valid = valid_in(s), .sequence = 8});
		snprintf(text, sizeof text, "shard %d", s);
		check_slopes(text, h.logits[s], gradient.logits[s], ROWS * COLUMNS, head_loss, &h);
	}
}

int main(void)
{
	struct CMUnitTest tests[PAIRS + 4] = {{0}};
	for (int i = 0; i < PAIRS; i++)
		tests[i] = (struct CMUnitTest){pairs[i].name, check_pair, NULL, NULL, (void *)(uintptr_t)&pairs[i]};
	tests[PAIRS] = (struct CMUnitTest){"linear layer with gelu", check_layer, NULL, NULL, NULL};
	tests[PAIRS + 1] = (struct CMUnitTest){"gelu", check_gelu, NULL, NULL, NULL};
	tests[PAIRS + 2] = (struct CMUnitTest){"loss over vocabulary shards", check_head, NULL, NULL, NULL};
	tests[PAIRS + 3] = (struct CMUnitTest){"rope", check_rope, NULL, NULL, NULL};
	bench_open(&bench, &backend_cpu, "plain", 1);
	int failed = _cmocka_run_group_tests("gradients", tests, PAIRS + 4, NULL, NULL);
	bench_close(&bench);
	return failed;
}

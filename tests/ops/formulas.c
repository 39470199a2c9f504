#include "formulas.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

static double *in(struct call *c, const char *name)
{
	struct arg *a = call_find(c, name);
	return a ? a->values : NULL;
}

static double *out(struct call *c, double *want[], const char *name)
{
	struct arg *a = call_find(c, name);
	return a ? want[a - c->args] : NULL;
}

/* x with dropout applied to element e of sample n. */
static double dropped(const struct dropout *d, int64_t n, int64_t e, double x)
{
	if (d->rate == 0)
		return x;
	uint64_t group = (uint64_t)e / 4;
	struct philox w = philox(d->seed, (struct philox){{(uint32_t)group, (uint32_t)(group >> 32), (uint32_t)n,
							   d->site << 16 | (uint32_t)(n >> 32)}});
	return (double)w.word[e % 4] >= d->rate * 4294967296.0 ? x / (1 - d->rate) : 0;
}

/* The micro-batch's row that row n of the tensor is. */
static int64_t placed_row(const struct span *s, int64_t n)
{
	int64_t at = s->row;
	for (; s->piece > 0 && n >= s->piece; n -= s->piece)
		at += s->stride;
	return at + n;
}

/* Of the tokens of a sample that are here, in order, the one at a row of the micro-batch. */
static int64_t token_at(const struct span *s, int64_t row)
{
	int64_t t = row % s->length, half = s->length / 2;
	return t >= half && s->jump ? s->first + half + s->jump + (t - half) : s->first + t;
}

static double row_dropped(struct call *c, const struct dropout *d, int64_t row, int64_t width, int64_t column, double x)
{
	if (d->rate == 0)
		return x;
	row = placed_row(&d->span, row);
	int64_t sample = c->scalars.samples + d->span.sample + row / d->span.length;
	return dropped(d, sample, token_at(&d->span, row) * width + column, x);
}

void formula_embedding_forward(struct call *c, double *want[])
{
	struct op_embedding_forward *op = &c->op.embedding_forward;
	int64_t rows = op->table.shape[0], width = op->table.shape[1];
	double *y = out(c, want, "out"), *tokens = in(c, "tokens"), *table = in(c, "table");
	for (int64_t i = 0; i < op->out.shape[0] * width; i++) {
		double v = tokens[i / width] - (double)op->first;
		y[i] = v >= 0 && v < (double)rows ? table[(int64_t)v * width + i % width] : 0;
	}
}

void formula_position_forward(struct call *c, double *want[])
{
	struct op_position_forward *op = &c->op.position_forward;
	const struct span *span = &op->dropout.span;
	int64_t width = op->x.shape[1];
	double *y = out(c, want, "out"), *x = in(c, "x"), *table = in(c, "table");
	for (int64_t i = 0; i < op->x.shape[0] * width; i++) {
		int64_t t = token_at(span, placed_row(span, i / width));
		double sum = x[i] + (table ? table[t * width + i % width] : 0);
		y[i] = row_dropped(c, &op->dropout, i / width, width, i % width, sum);
	}
}

struct norm {
	double *y, *mean, *rstd, *x, *weight, *bias;
	int64_t rows, width;
	double epsilon;
	enum norm_kind kind;
};

static void normalise(struct norm n)
{
	for (int64_t r = 0; r < n.rows; r++) {
		double sum = 0, squares = 0, mean = 0;
		for (int64_t i = 0; i < n.width; i++) {
			sum += n.x[r * n.width + i];
			squares += n.x[r * n.width + i] * n.x[r * n.width + i];
		}
		if (n.kind == NORM_LAYER)
			n.mean[r] = mean = sum / (double)n.width;
		n.rstd[r] = 1 / sqrt(squares / (double)n.width - mean * mean + n.epsilon);
		for (int64_t i = 0; i < n.width; i++)
			n.y[r * n.width + i] = (n.x[r * n.width + i] - mean) * n.rstd[r] * n.weight[i] + (n.bias ? n.bias[i] : 0);
	}
}

void formula_norm_forward(struct call *c, double *want[])
{
	struct op_norm_forward *op = &c->op.norm_forward;
	normalise((struct norm){out(c, want, "out"), out(c, want, "mean"), out(c, want, "rstd"), in(c, "x"), in(c, "weight"),
				in(c, "bias"), op->x.shape[0], op->x.shape[1], op->epsilon, op->kind});
}

void formula_residual_forward(struct call *c, double *want[])
{
	struct op_residual_forward *op = &c->op.residual_forward;
	int64_t rows = op->x.shape[0], width = op->x.shape[1];
	double *sum = out(c, want, "sum"), *x = in(c, "x"), *bias = in(c, "bias"), *residual = in(c, "residual");
	for (int64_t i = 0; i < rows * width; i++)
		sum[i] = residual[i] + row_dropped(c, &op->dropout, i / width, width, i % width,
						   x[i] + (bias ? bias[i % width] : 0));
	if (in(c, "norm_weight"))
		normalise((struct norm){out(c, want, "out"), out(c, want, "mean"), out(c, want, "rstd"), sum,
					in(c, "norm_weight"), in(c, "norm_bias"), rows, width, op->epsilon, op->kind});
}

static double gelu(enum gelu_kind kind, double x)
{
	return kind == GELU_ERF ? x * 0.5 * erfc(-x / sqrt(2)) : x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

void formula_gemm(struct call *c, double *want[])
{
	struct op_gemm *op = &c->op.gemm;
	int64_t m = op->out.shape[0], n = op->out.shape[1], k = op->a.shape[op->a_transposed ? 0 : 1];
	double *y = out(c, want, "out"), *a = in(c, "a"), *b = in(c, "b"), *bias = in(c, "bias"), *aux = in(c, "aux");
	double *pre = out(c, want, "aux");
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double sum = 0, h = 1e-3, slope;
			for (int64_t l = 0; l < k; l++)
				sum += (op->a_transposed ? a[l * m + i] : a[i * k + l]) * (op->b_transposed ? b[j * k + l] : b[l * n + j]);
			if (bias)
				sum += bias[j];
			switch (op->epilogue) {
			case GEMM_BIAS_GELU:
				pre[i * n + j] = sum;
				y[i * n + j] = gelu(op->gelu, sum);
				break;
			case GEMM_DGELU: /* by differences of the fourth order */
				slope = 8 * (gelu(op->gelu, aux[i * n + j] + h) - gelu(op->gelu, aux[i * n + j] - h)) -
					(gelu(op->gelu, aux[i * n + j] + 2 * h) - gelu(op->gelu, aux[i * n + j] - 2 * h));
				y[i * n + j] = sum * slope / (12 * h);
				break;
			default:
				y[i * n + j] = sum + (op->accumulate ? y[i * n + j] : 0);
			}
		}
}

void formula_gelu_forward(struct call *c, double *want[])
{
	double *y = out(c, want, "out"), *x = in(c, "x");
	for (int64_t i = 0; i < call_find(c, "x")->count; i++)
		y[i] = gelu(c->op.gelu_forward.gelu, x[i]);
}

void formula_swiglu_forward(struct call *c, double *want[])
{
	int64_t width = c->op.swiglu_forward.out.shape[1];
	double *y = out(c, want, "out"), *x = in(c, "x");
	for (int64_t i = 0; i < call_find(c, "out")->count; i++) {
		double gate = x[i + i / width * width], up = x[i + (i / width + 1) * width];
		y[i] = gate / (1 + exp(-gate)) * up;
	}
}

void formula_rope(struct call *c, double *want[])
{
	struct op_rope *op = &c->op.rope;
	const struct span *span = &op->span;
	int64_t parts = op->qkv.shape[2], token = op->qkv.shape[1] * parts, D = op->qkv.shape[3], R = op->table.shape[1];
	double *y = out(c, want, "qkv"), *x = in(c, "qkv"), *table = in(c, "table");
	for (int64_t i = 0; i < op->qkv.shape[0] * token * D; i++) {
		int64_t d = i % D, head = i / D % token, place = span_token(span, i / D / token) * R;
		if (head % parts == parts - 1 || d >= R)
			continue;
		double cosine = table[place + d % (R / 2)], sine = (op->inverse ? -1 : 1) * table[place + R / 2 + d % (R / 2)];
		y[i] = d < R / 2 ? x[i] * cosine - x[i + R / 2] * sine : x[i] * cosine + x[i - R / 2] * sine;
	}
}

void formula_unit_rows_forward(struct call *c, double *want[])
{
	int64_t width = c->op.unit_rows_forward.x.shape[1];
	double *y = out(c, want, "out"), *scale = out(c, want, "scale"), *x = in(c, "x");
	for (int64_t i = 0; i < call_find(c, "x")->count; i++) {
		double squares = 0;
		for (int64_t k = i / width * width; k < (i / width + 1) * width; k++)
			squares += x[k] * x[k];
		scale[i / width] = squares > 0 ? 1 / sqrt(squares) : 1e12;
		y[i] = squares > 0 ? x[i] / sqrt(squares) : 0;
	}
}

void formula_attention_forward(struct call *c, double *want[])
{
	struct op_attention_forward *op = &c->op.attention_forward;
	int64_t T = op->sequence, batch = op->qkv.shape[0] / T, D = op->qkv.shape[3], parts = op->qkv.shape[2];
	int64_t per_group = parts - 2, heads = op->qkv.shape[1] * per_group, token = op->qkv.shape[1] * parts * D;
	double *y = out(c, want, "out"), *lse = out(c, want, "lse"), *qkv = in(c, "qkv");
	double *slopes = call_find(c, "slopes") ? in(c, "slopes") : NULL;
	double *p = calloc((size_t)T, sizeof *p);
	for (int64_t b = 0; b < batch; b++)
		for (int64_t h = 0; h < heads; h++)
			for (int64_t t = 0; t < T; t++) {
				double *group = qkv + b * T * token + h / per_group * parts * D, total = 0;
				double *q = group + t * token + h % per_group * D, *row = y + ((b * T + t) * heads + h) * D;
				for (int64_t u = 0; u <= t; u++) {
					double s = 0, *k = group + u * token + per_group * D;
					for (int64_t d = 0; d < D; d++)
						s += q[d] * k[d];
					total += p[u] = exp(op->scale * s - (slopes ? slopes[h] * (double)(t - u) : 0));
				}
				lse[(b * heads + h) * T + t] = log(total);
				for (int64_t d = 0; d < D; d++)
					row[d] = 0;
				for (int64_t u = 0; u <= t; u++)
					for (int64_t d = 0; d < D; d++)
						row[d] += group[u * token + (per_group + 1) * D + d] *
							  dropped(&op->dropout, c->scalars.samples + op->dropout.span.sample + b,
								  ((op->first_head + h) * T + t) * T + u, p[u] / total);
			}
	free(p);
}

/* What was there counts as exp(lse) worth of keys whose average value is sum. */
void formula_attention_part_forward(struct call *c, double *want[])
{
	struct op_attention_part_forward *op = &c->op.attention_part_forward;
	const struct span *queries = &op->dropout.span, *keys = &op->keys;
	int64_t T = keys->length, D = op->qkv.shape[3], KV = op->qkv.shape[1], G = op->qkv.shape[2] - 2, S = keys->sequence;
	double *sums = out(c, want, "sum"), *lses = out(c, want, "lse"), *qkv = in(c, "qkv"), *kv = in(c, "kv");
	double *slopes = call_find(c, "slopes") ? in(c, "slopes") : NULL;
	for (int64_t i = 0; i < op->qkv.shape[0] * KV * G; i++) {
		int64_t n = i / (KV * G), h = i % (KV * G), b = n / T, t = token_at(queries, n % T);
		double *sum = sums + i * D, *lse = lses + (b * KV * G + h) * T + n % T, *q = qkv + ((n * KV + h / G) * (G + 2) + h % G) * D;
		double weight = op->fresh ? 0 : exp(*lse);
		if (!op->fresh && token_at(keys, 0) > t)
			continue; /* sees none */
		for (int64_t d = 0; d < D; d++)
			sum[d] = op->fresh ? 0 : sum[d] * weight;
		for (int64_t k = 0; k < T; k++) {
			double s = 0, *key = kv + ((b * T + k) * KV + h / G) * 2 * D;
			int64_t u = token_at(keys, k);
			if (u > t)
				continue;
			for (int64_t d = 0; d < D; d++)
				s += op->scale * q[d] * key[d];
			s -= slopes ? slopes[h] * (double)(t - u) : 0;
			weight += exp(s);
			s = dropped(&op->dropout, c->scalars.samples + queries->sample + b, ((op->first_head + h) * S + t) * S + u, exp(s));
			for (int64_t d = 0; d < D; d++)
				sum[d] += s * key[D + d];
		}
		*lse = log(weight);
		for (int64_t d = 0; d < D && weight > 0; d++)
			sum[d] /= weight;
	}
}

void formula_attention_delta(struct call *c, double *want[])
{
	struct op_attention_delta *op = &c->op.attention_delta;
	int64_t H = op->out.shape[1], D = op->out.shape[2], T = op->delta.shape[2];
	double *delta = out(c, want, "delta"), *dout = in(c, "dout"), *y = in(c, "out");
	for (int64_t i = 0; i < op->out.shape[0] * H * D; i++) {
		int64_t n = i / (H * D), h = i / D % H, at = (n / T * H + h) * T + n % T;
		delta[at] = (i % D == 0 ? 0 : delta[at]) + dout[i] * y[i];
	}
}

void formula_heads_copy(struct call *c, double *want[])
{
	struct op_heads_copy *op = &c->op.heads_copy;
	double *to = out(c, want, "to"), *from = in(c, "from");
	int64_t P = op->to.shape[2], Q = op->from.shape[2], D = op->to.shape[3];
	for (int64_t i = 0; i < call_find(c, "to")->count; i++) {
		int64_t part = i / D % P - op->to_first;
		if (part >= 0 && part < op->count)
			to[i] = from[(i / D / P * Q + op->from_first + part) * D + i % D];
	}
}

void formula_loss_stats(struct call *c, double *want[])
{
	struct op_loss_stats *op = &c->op.loss_stats;
	double *stats = out(c, want, "stats"), *logits = in(c, "logits"), *targets = in(c, "targets");
	for (int64_t n = 0; n < op->logits.shape[0]; n++) {
		double *l = logits + n * op->logits.shape[1], *s = stats + 3 * n;
		s[0] = -INFINITY;
		s[1] = s[2] = 0;
		for (int64_t v = 0; v < op->valid; v++)
			s[0] = fmax(s[0], l[v]);
		for (int64_t v = 0; v < op->valid; v++) {
			s[1] += exp(l[v] - s[0]);
			if (targets[n] >= 0 && targets[n] == (double)(op->first + v))
				s[2] = l[v];
		}
	}
}

void formula_loss_combine(struct call *c, double *want[])
{
	struct op_loss_combine *op = &c->op.loss_combine;
	double *lse = out(c, want, "lse"), *losses = out(c, want, "losses"), *stats = in(c, "stats"), *targets = in(c, "targets");
	int64_t rows = op->lse.shape[0];
	for (int64_t n = 0; n < rows; n++) {
		double sum = 0, target = 0;
		for (int64_t r = 0; r < op->stats.shape[0]; r++) {
			double *s = stats + (r * rows + n) * 3;
			sum += s[1] * exp(s[0]);
			target += s[2];
		}
		lse[n] = log(sum);
		losses[n] = targets[n] < 0 ? 0 : log(sum) - target;
	}
}

void formula_loss_total(struct call *c, double *want[])
{
	double *totals = out(c, want, "totals"), *losses = in(c, "losses"), *targets = in(c, "targets");
	for (int64_t n = 0; n < c->op.loss_total.losses.shape[0]; n++) {
		totals[0] += losses[n];
		totals[1] += targets[n] == -1 ? 0 : 1;
	}
}

void formula_add(struct call *c, double *want[])
{
	double *y = out(c, want, "y"), *x = in(c, "x");
	for (int64_t i = 0; i < call_find(c, "x")->count; i++)
		y[i] += x[i];
}

void formula_convert(struct call *c, double *want[])
{
	double *to = out(c, want, "to"), *from = in(c, "from");
	for (int64_t i = 0; i < call_find(c, "to")->count; i++)
		to[i] = round_to(c->op.convert.to.dtype, from[i]);
}

void formula_square_sums(struct call *c, double *want[])
{
	double *sums = out(c, want, "sums");
	for (int64_t g = 0; g < c->op.square_sums.count; g++) {
		struct arg *grad = &c->args[1 + g];
		double sum = 0;
		for (int64_t i = 0; i < grad->count; i++)
			sum += pow(grad->values[i], 2);
		sums[c->slots[g]] = sum;
	}
}

void formula_adamw(struct call *c, double *want[])
{
	const struct scalars *s = &c->scalars;
	const struct step_rules *r = &c->op.adamw.rules;
	for (int i = 0; i < 2 && !s->skipped; i++) {
		char names[5][16] = {"master 0", "m 0", "v 0", "grad 0", "weight 0"};
		for (int k = 0; k < 5; k++)
			names[k][strlen(names[k]) - 1] = (char)('0' + i);
		double *p = out(c, want, names[0]), *m = out(c, want, names[1]), *v = out(c, want, names[2]);
		double *g = in(c, names[3]), *weight = out(c, want, names[4]);
		for (int64_t k = 0; k < call_find(c, names[0])->count; k++) {
			double grad = g[k] * s->grad_factor;
			m[k] = r->beta1 * m[k] + (1 - r->beta1) * grad;
			v[k] = r->beta2 * v[k] + (1 - r->beta2) * grad * grad;
			double move = s->lr * (m[k] * s->correction1) / (sqrt(v[k] * s->correction2) + r->epsilon);
			p[k] = p[k] * (1 - (i == 0 ? s->decay : 0)) - move;
			if (weight)
				weight[k] = p[k];
		}
	}
}

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum {
	CHUNK = 1 << 15, /* elements of a part */
	PIECES = 64,     /* at most, of the squares of one tensor */
};

/* Half a vector of floats, and its doubles. */
typedef float half_floats __attribute__((vector_size(LANES * 2)));
typedef double half_doubles __attribute__((vector_size(LANES * 4)));

struct squares {
	const struct op_square_sums *op;
	double *sums; /* [count, PIECES] */
};

static void square_sums_part(void *context, int64_t part, int thread)
{
	const struct squares *w = context;
	const struct tensor *grad = &w->op->grads[part / PIECES];
	const int64_t count = tensor_count(*grad), half = LANES / 2;
	const int64_t piece = ceil_div(ceil_div(count, PIECES), CHUNK) * CHUNK;
	const int64_t begin = part % PIECES * piece, end = least(begin + piece, count);
	const float *g = grad->data;
	half_doubles sums[4] = {{0}};
	int64_t i = begin;
	for (; i + 4 * half <= end; i += 4 * half) {
#pragma GCC unroll 4
		for (int k = 0; k < 4; k++) {
			half_floats v;
			memcpy(&v, g + i + k * half, sizeof v);
			half_doubles d = __builtin_convertvector(v, half_doubles);
			sums[k] += d * d;
		}
	}
	half_doubles lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
	double sum = 0;
	for (int k = 0; k < half; k++)
		sum += lanes[k];
	for (; i < end; i++)
		sum += (double)g[i] * (double)g[i];
	w->sums[part] = sum;
}

size_t FAST(square_sums_room)(const struct dev_limits *limits)
{
	return (size_t)limits->tensors * PIECES * sizeof(double);
}

void FAST(square_sums)(struct device *dev, const struct op_square_sums *a)
{
	if (a->count > 0 && a->grads[0].dtype == F64) {
		ops_plain.square_sums(dev, a);
		return;
	}
	struct squares w = {a, cpu_room(dev)};
	parallel(dev, a->count * PIECES, square_sums_part, &w);
	for (int64_t i = 0; i < a->count; i++) {
		double sum = 0;
		for (int k = 0; k < PIECES; k++)
			sum += w.sums[i * PIECES + k];
		((double *)a->sums.data)[a->slots[i]] = sum;
	}
}

struct adam {
	const struct op_adamw *op;
	float beta1, rest1, beta2, rest2, factor, rate, correction2, epsilon, decay;
};

INLINE vf vf_sqrt(vf x)
{
#if LANES == 16
	return _mm512_sqrt_ps(x);
#elif LANES == 8
	return _mm256_sqrt_ps(x);
#else
	for (int i = 0; i < LANES; i++)
		x[i] = __builtin_sqrtf(x[i]);
	return x;
#endif
}

/* t: of the weight, where there is one. */
INLINE void adamw(enum dtype t, const struct adam *w, const struct adamw_item *item, int64_t begin, int64_t end)
{
	float *master = item->master.data, *m = item->m.data, *v = item->v.data;
	const float *grad = item->grad.data;
	const float decay = item->decay ? w->decay : 0;
	const bool weight = tensor_given(item->weight);
	for (int64_t i = begin; i < end; i += LANES) {
		vf p = get_to(F32, master, i, end), g = get_to(F32, grad, i, end) * w->factor;
		vf first = vf_fma(vf_set(w->beta1), get_to(F32, m, i, end), g * w->rest1);
		vf second = vf_fma(vf_set(w->beta2), get_to(F32, v, i, end), g * w->rest2 * g);
		p -= vf_fma(p, vf_set(decay), first * w->rate / (vf_sqrt(second * w->correction2) + w->epsilon));
		put_to(F32, m, i, first, end);
		put_to(F32, v, i, second, end);
		put_to(F32, master, i, p, end);
		if (weight)
			put_to(t, item->weight.data, i, p, end);
	}
}

static void adamw_part(void *context, int64_t part, int thread)
{
	const struct adam *w = context;
	const struct adamw_item *item = w->op->items;
	int64_t parts;
	for (; part >= (parts = ceil_div(tensor_count(item->master), CHUNK)); item++)
		part -= parts;
	int64_t begin = part * CHUNK, end = least(begin + CHUNK, tensor_count(item->master));
	BY_TYPE(tensor_given(item->weight) ? item->weight.dtype : F32, adamw, w, item, begin, end);
}

void FAST(adamw)(struct device *dev, const struct op_adamw *a)
{
	const struct scalars *s = dev->scalars;
	if (s->skipped || a->count == 0)
		return;
	if (a->items[0].master.dtype == F64) {
		ops_plain.adamw(dev, a);
		return;
	}
	struct adam w = {
		.op = a,
		.beta1 = (float)a->rules.beta1, .rest1 = (float)(1 - a->rules.beta1),
		.beta2 = (float)a->rules.beta2, .rest2 = (float)(1 - a->rules.beta2),
		.factor = (float)s->grad_factor, .rate = (float)(s->lr * s->correction1),
		.correction2 = (float)s->correction2, .epsilon = (float)a->rules.epsilon, .decay = (float)s->decay,
	};
	int64_t parts = 0;
	for (int64_t i = 0; i < a->count; i++)
		parts += ceil_div(tensor_count(a->items[i].master), CHUNK);
	parallel(dev, parts, adamw_part, &w);
}

#include "dev/cpu/plain/plain.h"

void PLAIN(square_sums)(struct device *dev, const struct op_square_sums *a)
{
	for (int64_t i = 0; i < a->count; i++) {
		double sum = 0;
		for (int64_t k = 0; k < tensor_count(a->grads[i]); k++) {
			double g = (double)get(a->grads[i], k);
			sum += g * g;
		}
		((double *)a->sums.data)[a->slots[i]] = sum;
	}
}

void PLAIN(step_verdict)(struct device *dev, const struct op_step_verdict *a)
{
	const double *totals = a->totals.data;
	scalars_verdict(dev->scalars, &a->rules, totals[0], totals[1], a->sums.data, a->sums.shape[0]);
}

void PLAIN(adamw)(struct device *dev, const struct op_adamw *a)
{
	const struct scalars *s = dev->scalars;
	real beta1 = (real)a->rules.beta1, rest1 = (real)(1 - a->rules.beta1);
	real beta2 = (real)a->rules.beta2, rest2 = (real)(1 - a->rules.beta2);
	real factor = (real)s->grad_factor, rate = (real)(s->lr * s->correction1);
	real correction2 = (real)s->correction2, epsilon = (real)a->rules.epsilon;

	if (s->skipped)
		return;
	for (int64_t i = 0; i < a->count; i++) {
		const struct adamw_item *item = &a->items[i];
		real decay = item->decay ? (real)s->decay : 0;
		for (int64_t k = 0; k < tensor_count(item->master); k++) {
			real p = get(item->master, k), g = get(item->grad, k) * factor;
			real m = beta1 * get(item->m, k) + rest1 * g;
			real v = beta2 * get(item->v, k) + rest2 * g * g;
			p -= rate * m / (MATH(sqrt)(v * correction2) + epsilon) + decay * p;
			put(item->m, k, m);
			put(item->v, k, v);
			put(item->master, k, p);
			if (tensor_given(item->weight))
				put(item->weight, k, p);
		}
	}
}

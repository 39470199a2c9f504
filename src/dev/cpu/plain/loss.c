#include "dev/cpu/plain/plain.h"

/* !(x <= most) lets a NaN through; whatever follows it, the sum of exp then is NaN too and the loss shows it. */
void PLAIN(loss_stats)(struct device *dev, const struct op_loss_stats *a)
{
	int64_t columns = a->logits.shape[1];

	for (int64_t n = 0; n < a->logits.shape[0]; n++) {
		int64_t target = token(a->targets, n) - a->first;
		bool here = token(a->targets, n) >= 0 && target >= 0 && target < a->valid;
		real most = -INFINITY, sum = 0;
		for (int64_t v = 0; v < a->valid; v++)
			if (!(get(a->logits, n * columns + v) <= most))
				most = get(a->logits, n * columns + v);
		for (int64_t v = 0; v < a->valid; v++)
			sum += MATH(exp)(get(a->logits, n * columns + v) - most);
		put(a->stats, n * 3, most);
		put(a->stats, n * 3 + 1, sum);
		put(a->stats, n * 3 + 2, here ? get(a->logits, n * columns + target) : 0);
	}
}

void PLAIN(loss_combine)(struct device *dev, const struct op_loss_combine *a)
{
	int64_t ranks = a->stats.shape[0], rows = a->stats.shape[1];

	for (int64_t n = 0; n < rows; n++) {
		real most = -INFINITY, sum = 0, target = 0;
		for (int64_t r = 0; r < ranks; r++)
			if (!(get(a->stats, (r * rows + n) * 3) <= most))
				most = get(a->stats, (r * rows + n) * 3);
		for (int64_t r = 0; r < ranks; r++) {
			int64_t at = (r * rows + n) * 3;
			sum += get(a->stats, at + 1) * MATH(exp)(get(a->stats, at) - most);
			target += get(a->stats, at + 2);
		}
		real lse = most + MATH(log)(sum);
		put(a->lse, n, lse);
		put(a->losses, n, token(a->targets, n) >= 0 ? lse - target : 0);
	}
}

void PLAIN(loss_backward)(struct device *dev, const struct op_loss_backward *a)
{
	int64_t columns = a->logits.shape[1];
	real factor = (real)(dev->scalars->loss_scale / (double)a->sequence);

	for (int64_t n = 0; n < a->logits.shape[0]; n++) {
		bool masked = token(a->targets, n) < 0;
		int64_t target = token(a->targets, n) - a->first;
		for (int64_t v = 0; v < columns; v++) {
			real p = MATH(exp)(get(a->logits, n * columns + v) - get(a->lse, n));
			bool counts = v < a->valid && !masked;
			put(a->logits, n * columns + v, counts ? (p - (v == target ? 1 : 0)) * factor : 0);
		}
	}
}

void PLAIN(loss_total)(struct device *dev, const struct op_loss_total *a)
{
	double sum = 0, count = 0, *totals = a->totals.data;

	for (int64_t n = 0; n < a->losses.shape[0]; n++) {
		sum += (double)get(a->losses, n);
		count += token(a->targets, n) >= 0;
	}
	totals[0] += sum;
	totals[1] += count;
}

#include <math.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

/* A part is one row of logits: a vocabulary is long. */

static float element(enum dtype t, const void *p, int64_t i)
{
	return t == F32 ? ((const float *)p)[i] : t == F16 ? float_from_fp16(((const uint16_t *)p)[i])
							   : float_from_bf16(((const uint16_t *)p)[i]);
}

static int64_t target_of(struct tensor targets, int64_t n)
{
	return ((const int32_t *)targets.data)[n];
}

INLINE void loss_stats(enum dtype t, const struct op_loss_stats *a, int64_t n)
{
	const int64_t columns = a->logits.shape[1], valid = a->valid, whole = valid / LANES * LANES;
	const void *logits = row_at(t, a->logits.data, n * columns);
	const int64_t token = target_of(a->targets, n), target = token - a->first;
	const bool here = token >= 0 && target >= 0 && target < valid;
	float *stats = (float *)a->stats.data + 3 * n;

	vf top = vf_set(-INFINITY);
	for (int64_t v = 0; v < whole; v += LANES)
		top = vf_max(top, get(t, logits, v));
	float most = vf_top(top);
	for (int64_t v = whole; v < valid; v++) {
		float l = element(t, logits, v);
		most = l > most ? l : most;
	}
	/* A NaN may be lost on the way to the largest; its exp is not lost in the sum. */
	vf sum = vf_set(0);
	for (int64_t v = 0; v < whole; v += LANES)
		sum += vf_exp(get(t, logits, v) - most);
	if (whole < valid) {
		vi inside = (vi)(vu_lanes() < (uint32_t)(valid - whole));
		sum += vf_select(inside, vf_exp(get_part(t, logits, whole, valid - whole) - most), vf_set(0));
	}
	stats[0] = most;
	stats[1] = vf_sum(sum);
	stats[2] = here ? element(t, logits, target) : 0;
}

static void loss_stats_part(void *context, int64_t part, int thread)
{
	const struct op_loss_stats *a = context;
	BY_TYPE(a->logits.dtype, loss_stats, a, part);
}

void FAST(loss_stats)(struct device *dev, const struct op_loss_stats *a)
{
	if (a->logits.dtype == F64) {
		ops_plain.loss_stats(dev, a);
		return;
	}
	struct op_loss_stats copy = *a;
	parallel(dev, a->logits.shape[0], loss_stats_part, &copy);
}

struct backward {
	const struct op_loss_backward *op;
	float factor;
};

INLINE void loss_backward(enum dtype t, const struct backward *w, int64_t n)
{
	const struct op_loss_backward *a = w->op;
	const int64_t columns = a->logits.shape[1], token = target_of(a->targets, n), target = token - a->first;
	const int64_t valid = token < 0 ? 0 : a->valid;
	const float lse = ((const float *)a->lse.data)[n];
	void *logits = row_at(t, a->logits.data, n * columns);
	const bool here = target >= 0 && target < valid;
	vf at_target = vf_set(here ? element(t, logits, target) : 0);

	for (int64_t v = 0; v < valid; v += LANES)
		put_to(t, logits, v, vf_exp(get_to(t, logits, v, valid) - lse) * w->factor, valid);
	if (here)
		put_part(t, logits, target, (vf_exp(at_target - lse) - 1.0f) * w->factor, 1);
	memset(row_at(t, logits, valid), 0, (size_t)(columns - valid) * dtype_size(t));
}

static void loss_backward_part(void *context, int64_t part, int thread)
{
	const struct backward *w = context;
	BY_TYPE(w->op->logits.dtype, loss_backward, w, part);
}

void FAST(loss_backward)(struct device *dev, const struct op_loss_backward *a)
{
	if (a->logits.dtype == F64) {
		ops_plain.loss_backward(dev, a);
		return;
	}
	struct backward w = {a, (float)(dev->scalars->loss_scale / (double)a->sequence)};
	parallel(dev, a->logits.shape[0], loss_backward_part, &w);
}

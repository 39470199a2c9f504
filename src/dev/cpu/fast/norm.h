/* norm.h: one row normalised, for the norm alone and for the norm that follows a residual sum.
 *
 * Used by norm.c and residual.c of fast/. */
#ifndef MTRAIN_DEV_CPU_FAST_NORM_H
#define MTRAIN_DEV_CPU_FAST_NORM_H

#include <math.h>

#include "dev/cpu/fast/rows.h"
#include "dev/ops.h"

/* Row n of a, width > 0. */
INLINE void norm_row(enum dtype t, const struct op_norm_forward *a, int64_t n)
{
	const int64_t width = a->x.shape[1];
	const void *x = row_at(t, a->x.data, n * width);
	void *out = row_at(t, a->out.data, n * width);
	const bool bias = tensor_given(a->bias);
	float mean = 0;
	if (a->kind == NORM_LAYER) {
		vf sum = vf_set(0);
		for (int64_t c = 0; c < width; c += LANES)
			sum += get_to(t, x, c, width);
		mean = vf_sum(sum) / (float)width;
		((float *)a->mean.data)[n] = mean;
	}
	vf squares = vf_set(0);
	int64_t whole = width / LANES * LANES;
	for (int64_t c = 0; c < whole; c += LANES) {
		vf d = get(t, x, c) - mean;
		squares = vf_fma(d, d, squares);
	}
	if (whole < width) {
		/* The lanes behind the row's end are made equal to the mean, to add nothing. */
		vi here = (vi)(vu_lanes() < (uint32_t)(width - whole));
		vf d = vf_select(here, get_part(t, x, whole, width - whole) - mean, vf_set(0));
		squares = vf_fma(d, d, squares);
	}
	float rstd = 1.0f / sqrtf(vf_sum(squares) / (float)width + (float)a->epsilon);
	((float *)a->rstd.data)[n] = rstd;
	for (int64_t c = 0; c < width; c += LANES) {
		vf y = (get_to(t, x, c, width) - mean) * rstd * get_to(t, a->weight.data, c, width);
		if (bias)
			y += get_to(t, a->bias.data, c, width);
		put_to(t, out, c, y, width);
	}
}

#endif

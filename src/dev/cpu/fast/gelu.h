/* gelu.h: exp, GELU and its derivative on vectors, to about FP32 rounding.
 *
 * GELU is written as x·Φ(x), where neither form subtracts nearly equal numbers: the tanh form is a sigmoid, since
 * (1 + tanh u)/2 = 1/(1 + exp(−2u)); the erf form takes the tail of the normal distribution as exp(−z²)·q(1/(1 + 0.3z)),
 * z = |x|/√2, q a polynomial fitted to erfc(z)·exp(z²) on 0 … 10 with relative error 2e-8.
 *
 * Used by the files of fast/ alone. */
#ifndef MTRAIN_DEV_CPU_FAST_GELU_H
#define MTRAIN_DEV_CPU_FAST_GELU_H

#include <math.h>

#include "dev/cpu/fast/simd.h"
#include "dev/ops.h"

/* eˣ: x = n·ln 2 + r with |r| ≤ ln 2/2; e^r = 1 + r + r²·g(r), g fitted with relative error 3e-9 of e^r. Below the
 * normal range it is 0, above 2.4e38 infinity; both are chosen, not computed, since a processor is slow where results
 * underflow. A NaN stays one. */
INLINE vf vf_exp(vf x)
{
	const vf shift = vf_set(0x1.8p23f); /* the sum's low bits are the nearest whole number */
	vf y = vf_max(vf_set(-87.33f), vf_min(vf_set(88.37f), x));
	vf t = vf_fma(y, vf_set(1.44269504f), shift);
	vf n = t - shift;
	vf r = vf_fma(n, vf_set(-0.693359375f), y);
	r = vf_fma(n, vf_set(2.12194440e-4f), r);
	vf g = vf_fma(r, vf_set(0.00138144667f), vf_set(0.00836878043f));
	g = vf_fma(r, g, vf_set(0.0416683942f));
	g = vf_fma(r, g, vf_set(0.166665201f));
	g = vf_fma(r, g, vf_set(0.499999934f));
	g = vf_fma(r * r, g, r) + 1.0f;
	g *= (vf)(((vi)t - (vi)shift + 127) << 23);
	g = vf_select(x < -87.33f, vf_set(0), g);
	return vf_select(x > 88.37f, vf_set(INFINITY), g);
}

/* Φ in the form that `kind` says. For the tanh form also, in *slope, d(2u)/dx. */
INLINE vf gelu_gate(enum gelu_kind kind, vf x, vf *slope)
{
	if (kind == GELU_TANH) {
		const float c = 1.5957691216f; /* 2·√(2/π) */
		vf x2 = x * x;
		vf u2 = x * vf_fma(x2, vf_set(c * 0.044715f), vf_set(c));
		*slope = vf_fma(x2, vf_set(3 * c * 0.044715f), vf_set(c));
		return 1.0f / (1.0f + vf_exp(-u2));
	}
	vi negative = x < 0.0f;
	vf z = vf_select(negative, -x, x) * 0.707106781f;
	vf t = 1.0f / vf_fma(z, vf_set(0.3f), vf_set(1.0f));
	vf q = vf_fma(t, vf_set(-0.126519326f), vf_set(0.468837489f));
	q = vf_fma(t, q, vf_set(-0.471803902f));
	q = vf_fma(t, q, vf_set(0.491938524f));
	q = vf_fma(t, q, vf_set(-0.0464677633f));
	q = vf_fma(t, q, vf_set(0.187912555f));
	q = vf_fma(t, q, vf_set(0.158156711f));
	q = vf_fma(t, q, vf_set(0.16848731f));
	q = vf_fma(t, q, vf_set(0.169474242f));
	q = vf_fma(t, q, vf_set(-1.58557098e-05f));
	vf tail = 0.5f * vf_exp(-(z * z)) * q;
	return vf_select(negative, tail, 1.0f - tail);
}

INLINE vf vf_gelu(enum gelu_kind kind, vf x)
{
	vf slope;
	return x * gelu_gate(kind, x, &slope);
}

/* tanh form: σ + x·σ·(1−σ)·slope; erf form: Φ + x·exp(−x²/2)/√(2π). */
INLINE vf vf_dgelu(enum gelu_kind kind, vf x)
{
	vf slope, gate = gelu_gate(kind, x, &slope);
	if (kind == GELU_TANH)
		return vf_fma(x * gate * (1.0f - gate), slope, gate);
	return vf_fma(x * 0.398942280f, vf_exp(x * x * -0.5f), gate);
}

#endif

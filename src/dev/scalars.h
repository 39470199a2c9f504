/* scalars.h: what changes from step to step, in one struct in device memory, and the rules that change it.
 *
 * Loss scale, learning rate, clip factor, the counters and the overflow verdict never pass through the host inside
 * a step: ops read them here, one op (`step_verdict`) moves them on, and the host reads a copy a step late to print
 * it. The functions are inline so that every backend computes the very same thing.
 *
 * Formulas: design "Numbers"; AdamW: Loshchilov & Hutter 2019; dynamic loss scale: Micikevicius et al. 2018. */
#ifndef MTRAIN_DEV_SCALARS_H
#define MTRAIN_DEV_SCALARS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/anywhere.h"

enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT, LR_WSD };

/* What the settings say once and for all. */
struct step_rules {
	enum lr_schedule schedule;
	double lr, min_lr;
	int64_t warmup_steps, decay_steps; /* in updates */
	double beta1, beta2, epsilon;
	double weight_decay;
	double clip; /* 0: off */
	bool dynamic_scale;
	double scale_min;
	int64_t scale_window; /* good steps before the scale doubles */
	int64_t sequence;     /* T: backward starts with loss_scale/sequence a token */
	int64_t global_batch; /* samples a step */
};

/* The largest loss scale: doubling stops there, so that scale/sequence·gradient keeps a finite FP32 form. */
#define SCALE_MAX 0x1p24

struct scalars {
	/* Counters and the scale: saved with a checkpoint. They speak of the attempt that runs now. */
	int64_t step;     /* attempts finished */
	int64_t updates;  /* of these, successful */
	int64_t samples;  /* samples consumed: the first global sample of this attempt */
	int64_t tokens;   /* tokens consumed, masked ones too */
	double loss_scale;
	int64_t good_steps;   /* since the scale last changed */
	int64_t overflows;    /* in a row at the minimum scale (or without a dynamic scale) */

	/* The verdict on the attempt that was finished last. */
	bool skipped;          /* not finite: neither weights nor updates moved */
	int64_t first_bad;     /* index of the first sum that was not finite; −1: none; −2: the loss */
	int64_t loss_tokens;   /* T: unmasked tokens of the global batch */
	double loss;           /* mean over them */
	double grad_norm;      /* unscaled, before clipping */
	double used_scale;     /* the loss scale that attempt ran with */
	double lr, decay;      /* decay: lr·weight_decay */
	double grad_factor;    /* unscale · clip factor: gradient as stored → gradient as applied */
	double correction1, correction2; /* 1/(1 − beta^updates) */
};

/* Learning rate of the update that comes after `updates` successful ones. Warm-up is linear: lr·(u+1)/warmup. After
 * it, with x = progress from warmup_steps to decay_steps clamped to [0, 1]: cosine min + (lr−min)(1+cos πx)/2;
 * linear lr + (min−lr)x; wsd constant until x = 0.8, then linear to min; constant lr. */
ANYWHERE static inline double lr_at(const struct step_rules *r, int64_t updates)
{
	if (updates < r->warmup_steps)
		return r->lr * (double)(updates + 1) / (double)r->warmup_steps;
	double span = (double)(r->decay_steps - r->warmup_steps);
	double x = span > 0 ? (double)(updates - r->warmup_steps) / span : 1.0;
	if (x > 1.0)
		x = 1.0;
	switch (r->schedule) {
	case LR_COSINE:
		return r->min_lr + (r->lr - r->min_lr) * 0.5 * (1.0 + cos(3.14159265358979323846 * x));
	case LR_LINEAR:
		return r->lr + (r->min_lr - r->lr) * x;
	case LR_WSD:
		return x <= 0.8 ? r->lr : r->lr + (r->min_lr - r->lr) * (x - 0.8) / 0.2;
	case LR_CONSTANT:
		break;
	}
	return r->lr;
}

/* Judges an attempt and moves the counters on.
 * loss_sum: sum of token losses; tokens: T; sums[count]: squares of the scaled gradients in parameter-table order. */
ANYWHERE static inline void scalars_verdict(struct scalars *s, const struct step_rules *r, double loss_sum,
					    double tokens, const double *sums, int64_t count)
{
	double total = 0;
	s->first_bad = -1;
	for (int64_t i = 0; i < count; i++) {
		if (!isfinite(sums[i]) && s->first_bad == -1)
			s->first_bad = i;
		total += sums[i];
	}
	if (s->first_bad == -1 && !isfinite(loss_sum))
		s->first_bad = -2;
	s->skipped = s->first_bad != -1;

	double unscale = tokens > 0 ? (double)r->sequence / (s->loss_scale * tokens) : 0.0;
	s->loss_tokens = (int64_t)tokens;
	s->loss = tokens > 0 ? loss_sum / tokens : 0.0;
	s->grad_norm = sqrt(total) * unscale;
	s->used_scale = s->loss_scale;
	s->lr = lr_at(r, s->updates);
	s->decay = s->lr * r->weight_decay;
	s->grad_factor = unscale;
	if (r->clip > 0 && r->clip < s->grad_norm + 1e-6)
		s->grad_factor *= r->clip / (s->grad_norm + 1e-6);

	s->step++;
	s->samples += r->global_batch;
	s->tokens += r->global_batch * r->sequence;
	if (s->skipped) {
		bool at_minimum = !r->dynamic_scale || s->loss_scale <= r->scale_min;
		s->overflows = at_minimum ? s->overflows + 1 : 0;
		s->good_steps = 0;
		if (!at_minimum)
			s->loss_scale = s->loss_scale * 0.5 > r->scale_min ? s->loss_scale * 0.5 : r->scale_min;
		return;
	}
	s->overflows = 0;
	s->updates++;
	s->correction1 = 1.0 / (1.0 - pow(r->beta1, (double)s->updates));
	s->correction2 = 1.0 / (1.0 - pow(r->beta2, (double)s->updates));
	if (r->dynamic_scale && ++s->good_steps >= r->scale_window) {
		s->good_steps = 0;
		if (s->loss_scale < SCALE_MAX)
			s->loss_scale = s->loss_scale < SCALE_MAX / 2 ? s->loss_scale * 2.0 : SCALE_MAX;
	}
}

#endif

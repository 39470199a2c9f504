/* The rules of a step: learning rate, loss scale, verdict, clip, counters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/scalars.h"

static const struct step_rules rules = {
	.schedule = LR_COSINE, .lr = 1, .min_lr = 0.1, .warmup_steps = 4, .decay_steps = 14, .beta1 = 0.9, .beta2 = 0.95,
	.epsilon = 1e-8, .weight_decay = 0.1, .clip = 0, .dynamic_scale = true, .scale_min = 1, .scale_window = 3,
	.sequence = 16, .global_batch = 2,
};

static void near(double is, double right)
{
	if (!(fabs(is - right) <= 1e-14 * fabs(right)))
		fail_msg("%.17g, should be %.17g", is, right);
}

static void check_lr(void **state)
{
	static const struct {
		enum lr_schedule schedule;
		double at[14]; /* of updates 4 … 14: x = 0, 0.1 … 1; then of 15, 100, 1000000 */
	} known[] = {
		{LR_LINEAR, {1, 0.91, 0.82, 0.73, 0.64, 0.55, 0.46, 0.37, 0.28, 0.19, 0.1, 0.1, 0.1, 0.1}},
		{LR_CONSTANT, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{LR_WSD, {1, 1, 1, 1, 1, 1, 1, 1, 1, 0.55, 0.1, 0.1, 0.1, 0.1}},
		/* 0.1 + 0.45(1 + cos kπ/10), from √(10 + 2√5)/4, (1 + √5)/4, √(10 − 2√5)/4, (√5 − 1)/4, 0 */
		{LR_COSINE, {1, 0.97797543233281926, 0.91405764746872648, 0.81450336353161289, 0.68905764746872633, 0.55,
			     0.41094235253127369, 0.28549663646838717, 0.18594235253127372, 0.12202456766718092, 0.1, 0.1, 0.1, 0.1}},
	};
	static const int64_t late[] = {15, 100, 1000000};
	for (size_t s = 0; s < sizeof known / sizeof *known; s++) {
		struct step_rules r = rules;
		r.schedule = known[s].schedule;
		for (int64_t u = 0; u < 4; u++)
			near(lr_at(&r, u), 0.25 * (double)(u + 1));
		for (int64_t u = 4; u <= 14; u++)
			near(lr_at(&r, u), known[s].at[u - 4]);
		for (int i = 0; i < 3; i++)
			near(lr_at(&r, late[i]), known[s].at[11 + i]);
		r.warmup_steps = 0;
		near(lr_at(&r, 0), 1);
		r.warmup_steps = r.decay_steps = 5; /* nothing left to decay over */
		near(lr_at(&r, 4), 1);
		near(lr_at(&r, 5), r.schedule == LR_CONSTANT ? 1 : 0.1);
	}
}

static struct scalars start(double scale)
{
	return (struct scalars){.loss_scale = scale};
}

static void good(struct scalars *s, const struct step_rules *r)
{
	const double sums[] = {1, 2};
	scalars_verdict(s, r, 10, 32, sums, 2);
}

static void bad(struct scalars *s, const struct step_rules *r)
{
	const double sums[] = {1, INFINITY};
	scalars_verdict(s, r, 10, 32, sums, 2);
}

/* An overflow at step `at` of twelve: that attempt alone moves no update, and everything else is as without it. */
static void check_overflow_at(void **state)
{
	for (int at = 0; at < 12; at++) {
		struct scalars s = start(4096), clean = start(4096);
		for (int step = 0; step < 12; step++) {
			int64_t updates = s.updates;
			double scale = s.loss_scale;
			if (step == at)
				bad(&s, &rules);
			else
				good(&s, &rules);
			good(&clean, &rules);
			assert_int_equal(s.skipped, step == at);
			assert_int_equal(s.first_bad, step == at ? 1 : -1);
			assert_int_equal(s.updates, updates + (step != at));
			assert_true(s.used_scale == scale);
			near(s.lr, lr_at(&rules, updates));
			near(s.decay, 0.1 * s.lr);
			if (step == at)
				assert_true(s.loss_scale == scale / 2 && s.good_steps == 0 && isinf(s.grad_norm));
			else
				near(s.correction1, 1 / (1 - pow(0.9, (double)s.updates)));
			assert_int_equal(s.step, step + 1);
			assert_int_equal(s.samples, clean.samples); /* the data of a skipped step is consumed */
			assert_int_equal(s.tokens, clean.tokens);
			assert_int_equal(s.overflows, 0); /* none at the minimum */
		}
		assert_int_equal(s.updates, 11);
		assert_int_equal(s.samples, 24);
		assert_int_equal(s.tokens, 24 * 16);
	}
}

static void check_scale_rises(void **state)
{
	struct scalars s = start(8);
	for (int step = 1; step <= 9; step++) {
		good(&s, &rules);
		assert_true(s.loss_scale == 8 * pow(2, step / 3));
	}
	bad(&s, &rules); /* 64 → 32, and the window begins again */
	good(&s, &rules);
	good(&s, &rules);
	assert_true(s.loss_scale == 32);
	good(&s, &rules);
	assert_true(s.loss_scale == 64);
	s.loss_scale = SCALE_MAX * 0.75;
	for (int step = 0; step < 9; step++)
		good(&s, &rules);
	assert_true(s.loss_scale == SCALE_MAX);
}

static void check_scale_falls(void **state)
{
	struct step_rules r = rules;
	struct scalars s = start(10);
	r.scale_min = 3;
	bad(&s, &r);
	assert_true(s.loss_scale == 5 && s.overflows == 0);
	bad(&s, &r);
	assert_true(s.loss_scale == 3 && s.overflows == 0);
	bad(&s, &r);
	bad(&s, &r);
	assert_true(s.loss_scale == 3 && s.overflows == 2);
	good(&s, &r);
	assert_int_equal(s.overflows, 0);
}

static void check_fixed_scale(void **state)
{
	struct step_rules r = rules;
	struct scalars s = start(128);
	r.dynamic_scale = false;
	for (int step = 0; step < 10; step++)
		good(&s, &r);
	bad(&s, &r);
	bad(&s, &r);
	assert_true(s.loss_scale == 128 && s.overflows == 2 && s.updates == 10);
}

static void check_loss_verdict(void **state)
{
	const double sums[] = {4, 12}, hurt[] = {1, (double)NAN, INFINITY};
	struct scalars s = start(1024);
	scalars_verdict(&s, &rules, (double)NAN, 32, sums, 2);
	assert_true(s.skipped && s.first_bad == -2 && isnan(s.loss));
	scalars_verdict(&s, &rules, INFINITY, 32, hurt, 3);
	assert_true(s.skipped && s.first_bad == 1);

	s = start(1024); /* 24 of 32 tokens count; gradients are scaled by 1024/16 a token */
	scalars_verdict(&s, &rules, 60, 24, sums, 2);
	near(s.loss, 2.5);
	assert_int_equal(s.loss_tokens, 24);
	near(s.grad_norm, 4 * 16 / (1024.0 * 24));
	near(s.grad_factor, 16 / (1024.0 * 24));

	scalars_verdict(&s, &rules, 0, 0, sums, 0); /* every token masked */
	assert_true(!s.skipped && s.loss == 0 && s.grad_norm == 0 && s.grad_factor == 0);
}

static void check_clip(void **state)
{
	struct step_rules r = rules;
	struct scalars s = start(16);
	const double sums[] = {9 * 24.0 * 24.0, 16 * 24.0 * 24.0}; /* norm 5 after unscaling by 1/24 */
	r.clip = 1;
	scalars_verdict(&s, &r, 1, 24, sums, 2);
	near(s.grad_norm, 5);
	near(s.grad_factor, 1 / 24.0 * (1 / (5 + 1e-6)));
	r.clip = 4.5;
	s = start(16);
	scalars_verdict(&s, &r, 1, 24, sums, 2);
	near(s.grad_factor, 1 / 24.0 * (4.5 / (5 + 1e-6)));
	r.clip = 6;
	s = start(16);
	scalars_verdict(&s, &r, 1, 24, sums, 2);
	near(s.grad_factor, 1 / 24.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_lr),          cmocka_unit_test(check_overflow_at), cmocka_unit_test(check_scale_rises),
		cmocka_unit_test(check_scale_falls), cmocka_unit_test(check_fixed_scale), cmocka_unit_test(check_loss_verdict),
		cmocka_unit_test(check_clip),
	};
	return cmocka_run_group_tests_name("scalars", tests, NULL, NULL);
}

#include "compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void compare_tensor(struct call *x, struct arg *a, const double *r, const double *p)
{
	double scale = 0, honest = 0, worst = 0;
	int64_t at = 0;
	for (int64_t k = 0; k < a->count; k++) {
		if (!isfinite(r[k])) {
			if (isnan(r[k]) ? !isnan(a->result[k]) : a->result[k] != r[k])
				fail_msg("%s: %s[%lld] is %g, should be %g", x->text, a->name, (long long)k, a->result[k], r[k]);
			continue;
		}
		double error = fabs(a->result[k] - r[k]);
		scale = fmax(scale, fabs(r[k]));
		honest = fmax(honest, fabs(p[k] - r[k]));
		if (!(error <= worst)) {
			worst = error;
			at = k;
		}
	}
	if (!(worst <= 2 * honest + 1e-6 * scale))
		fail_msg("%s: %s[%lld] is %.9g, should be %.9g: error %.3g, plain has at most %.3g, the largest value is %.3g",
			 x->text, a->name, (long long)at, a->result[at], r[at], worst, honest, scale);
}

static void compare_scalars(const struct call *x, const struct scalars *p)
{
	const struct scalars *s = &x->scalars_after;
	const double pairs[][2] = {
		{(double)s->step, (double)p->step}, {(double)s->updates, (double)p->updates},
		{(double)s->samples, (double)p->samples}, {(double)s->tokens, (double)p->tokens},
		{s->loss_scale, p->loss_scale}, {(double)s->good_steps, (double)p->good_steps},
		{(double)s->overflows, (double)p->overflows}, {s->skipped, p->skipped},
		{(double)s->first_bad, (double)p->first_bad}, {(double)s->loss_tokens, (double)p->loss_tokens},
		{s->loss, p->loss}, {s->grad_norm, p->grad_norm}, {s->used_scale, p->used_scale}, {s->lr, p->lr},
		{s->decay, p->decay}, {s->grad_factor, p->grad_factor}, {s->correction1, p->correction1},
		{s->correction2, p->correction2}};
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		if (isnan(pairs[i][1]) ? !isnan(pairs[i][0]) :
		    pairs[i][0] != pairs[i][1] && !(fabs(pairs[i][0] - pairs[i][1]) <= 1e-14 * fabs(pairs[i][1])))
			fail_msg("%s: scalar %zu is %.17g, should be %.17g", x->text, i, pairs[i][0], pairs[i][1]);
}

void compare_calls(struct call *x, struct call *p, struct call *r)
{
	for (int i = 0; i < x->count; i++)
		if ((x->args[i].role == OUT || x->args[i].role == INOUT) && !x->args[i].shared)
			compare_tensor(x, &x->args[i], r->args[i].result, p->args[i].result);
	if (x->moves_scalars)
		compare_scalars(x, &p->scalars_after);
}

/* The plain forward ops on FP64 storage against the formulas of the book. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cases.h"
#include "dev/cpu/cpu.h"
#include "formulas.h"

static struct bench bench;

static const struct {
	const char *name;
	formula *formula;
} formulas[] = {
	{"embedding_forward", formula_embedding_forward},
	{"position_forward", formula_position_forward},
	{"norm_forward", formula_norm_forward},
	{"residual_forward", formula_residual_forward},
	{"gemm", formula_gemm},
	{"gelu_forward", formula_gelu_forward},
	{"swiglu_forward", formula_swiglu_forward},
	{"rope", formula_rope},
	{"unit_rows_forward", formula_unit_rows_forward},
	{"attention_forward", formula_attention_forward},
	{"attention_part_forward", formula_attention_part_forward},
	{"attention_delta", formula_attention_delta},
	{"heads_copy", formula_heads_copy},
	{"loss_stats", formula_loss_stats},
	{"loss_combine", formula_loss_combine},
	{"loss_total", formula_loss_total},
	{"add", formula_add},
	{"convert", formula_convert},
	{"square_sums", formula_square_sums},
	{"adamw", formula_adamw},
};
enum { FORMULAS = sizeof formulas / sizeof *formulas };

/* Two orders of one sum in FP64 are this far apart at most, relative to the tensor's largest value; the differences
 * that stand for gelu' are the least exact. */
static const double exactness = 1e-11;

static void compare(struct call *c, double *want[])
{
	for (int i = 0; i < c->count; i++) {
		struct arg *a = &c->args[i];
		double scale = 0;
		if (!want[i])
			continue;
		for (int64_t k = 0; k < a->count; k++)
			scale = isfinite(want[i][k]) ? fmax(scale, fabs(want[i][k])) : scale;
		for (int64_t k = 0; k < a->count; k++)
			if (a->result[k] != want[i][k] && !(fabs(a->result[k] - want[i][k]) <= exactness * scale))
				fail_msg("%s: %s[%lld] is %.17g, the formula gives %.17g", c->text, a->name, (long long)k,
					 a->result[k], want[i][k]);
	}
}

static void check_formula(void **state)
{
	const struct op_cases *cases = *state;
	formula *right = NULL;
	struct call c;
	for (int i = 0; i < FORMULAS; i++)
		if (strcmp(formulas[i].name, cases->name) == 0)
			right = formulas[i].formula;
	for (int size = 0; size < cases->size_count; size++)
		for (unsigned variant = 0; variant < cases->variants; variant++) {
			double *want[CALL_ARGS] = {0};
			if (!case_taken(cases, size, variant) || !case_build(&c, cases->build, F64, F64, cases->sizes[size], variant))
				continue;
			snprintf(c.text, sizeof c.text, "%s size %d variant %u", cases->name, size, variant);
			for (int i = 0; i < c.count; i++) {
				struct arg *a = &c.args[i];
				if (a->role == IN || a->role == ROOM || a->shared)
					continue;
				want[i] = calloc((size_t)a->count + 1, sizeof **want);
				for (int64_t k = 0; a->values && k < a->count; k++)
					want[i][k] = a->values[k];
			}
			right(&c, want);
			call_run(&bench, &c, size % 2);
			compare(&c, want);
			for (int i = 0; i < c.count; i++)
				free(want[i]);
			call_finish(&c);
		}
}

int main(void)
{
	struct CMUnitTest tests[FORMULAS] = {{0}};
	int count = 0;
	for (int i = 0; i < op_cases_count; i++)
		for (int k = 0; k < FORMULAS; k++)
			if (strcmp(op_cases[i].name, formulas[k].name) == 0)
				tests[count++] = (struct CMUnitTest){op_cases[i].name, check_formula, NULL, NULL,
								     (void *)(uintptr_t)&op_cases[i]};
	bench_open(&bench, &backend_cpu, "plain", 1);
	int failed = _cmocka_run_group_tests("formulas", tests, (size_t)count, NULL, NULL);
	bench_close(&bench);
	return failed;
}

/* The plain ops in FP32, FP16 and BF16.
 *
 * Everything inside an op is in the type of sums, so on 16-bit storage the plain op must give what it gives on FP32
 * storage of the same values, rounded once: bit for bit. On FP32 storage it must be as near to
 * what it gives on FP64 storage as that is when every input is off by half a unit of FP32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cases.h"
#include "dev/cpu/cpu.h"

static struct bench bench;

static bool told(const struct arg *a)
{
	return (a->role == OUT || a->role == INOUT) && !a->shared;
}

static void same_rounded(struct call *c, struct call *wide)
{
	for (int i = 0; i < c->count; i++) {
		struct arg *a = &c->args[i];
		for (int64_t k = 0; told(a) && !a->late && k < a->count; k++) {
			double right = round_to(a->at->dtype, wide->args[i].result[k]);
			if (a->result[k] != right && !(isnan(right) && isnan(a->result[k])))
				fail_msg("%s: %s[%lld] is %.9g, in FP32 and then rounded it is %.9g", c->text, a->name, (long long)k,
					 a->result[k], right);
		}
	}
}

static void near_wide(struct call *c, struct call *wide, struct call *nudged)
{
	for (int i = 0; i < c->count; i++) {
		struct arg *a = &c->args[i];
		const double *right = wide->args[i].result;
		double scale = 0, honest = 0;
		for (int64_t k = 0; told(a) && k < a->count; k++)
			if (isfinite(right[k])) {
				scale = fmax(scale, fabs(right[k]));
				honest = fmax(honest, fabs(nudged->args[i].result[k] - right[k]));
			}
		for (int64_t k = 0; told(a) && k < a->count; k++)
			if (isfinite(right[k]) ? !(fabs(a->result[k] - right[k]) <= 2 * honest + 1e-6 * scale) :
			    isnan(right[k]) ? !isnan(a->result[k]) : a->result[k] != right[k])
				fail_msg("%s: %s[%lld] is %.9g, in FP64 it is %.9g, known to %.3g, the largest is %.3g", c->text, a->name,
					 (long long)k, a->result[k], right[k], honest, scale);
	}
}

static void nudge(struct call *c)
{
	for (int i = 0; i < c->count; i++)
		for (int64_t k = 0; c->args[i].values && c->args[i].kind != KIND_I32 && k < c->args[i].count; k++)
			if (!c->args[i].same)
				c->args[i].values[k] *= 1 + (call_draw("nudge", k, 2) ? 0x1p-24 : -0x1p-24);
}

static void build_and_run(struct call *c, const struct op_cases *cases, int size, unsigned variant, enum dtype storage,
			  enum dtype grid)
{
	case_build(c, cases->build, storage, grid, cases->sizes[size], variant);
	snprintf(c->text, sizeof c->text, "%s %s size %d variant %u", cases->name, dtype_name(storage), size, variant);
	call_run(&bench, c, 0);
}

static void check_op(void **state)
{
	const struct op_cases *cases = *state;
	for (int size = 0; size < cases->size_count; size++)
		for (unsigned variant = 0; variant < cases->variants; variant++) {
			struct call narrow, wide, nudged;
			if (!case_taken(cases, size, variant) || !case_build(&wide, cases->build, F64, F64, cases->sizes[size], variant))
				continue;
			call_finish(&wide);
			for (enum dtype type = BF16; type <= F16; type++) {
				build_and_run(&narrow, cases, size, variant, type, type);
				build_and_run(&wide, cases, size, variant, F32, type);
				same_rounded(&narrow, &wide);
				call_finish(&narrow);
				call_finish(&wide);
			}
			build_and_run(&narrow, cases, size, variant, F32, F32);
			build_and_run(&wide, cases, size, variant, F64, F32);
			case_build(&nudged, cases->build, F64, F32, cases->sizes[size], variant);
			nudge(&nudged);
			call_run(&bench, &nudged, 0);
			near_wide(&narrow, &wide, &nudged);
			call_finish(&nudged);
			call_finish(&narrow);
			call_finish(&wide);
		}
}

static int64_t count_of(struct call *c, const char *name)
{
	return call_find(c, name)->count;
}

/* gemm's gelu is that of aux as rounded: the same as adding aux to a product of zeros. */
static void check_gemm_gelu(void **state)
{
	for (enum dtype type = F64; type <= F16; type++)
		for (unsigned which = GEMM_CASE_TANH; which <= GEMM_CASE_ERF; which += GEMM_CASE_ERF - GEMM_CASE_TANH) {
			struct call first, again;
			case_build(&first, case_gemm, type, type, (int64_t[SIZE_DIMS]){1, 40, 65}, GEMM_STEP * which);
			case_build(&again, case_gemm, type, type, (int64_t[SIZE_DIMS]){1, 40, 65}, GEMM_STEP * which);
			call_run(&bench, &first, 0);
			for (int64_t i = 0; i < count_of(&again, "a"); i++)
				call_find(&again, "a")->values[i] = 0;
			memcpy(call_find(&again, "bias")->values, call_find(&first, "aux")->result, 65 * sizeof(double));
			call_run(&bench, &again, 0);
			assert_memory_equal(call_find(&first, "out")->result, call_find(&again, "out")->result, 65 * sizeof(double));
			call_finish(&first);
			call_finish(&again);
		}
}

int main(void)
{
	struct CMUnitTest *tests = calloc((size_t)op_cases_count + 1, sizeof *tests);
	for (int i = 0; i < op_cases_count; i++)
		tests[i] = (struct CMUnitTest){op_cases[i].name, check_op, NULL, NULL, (void *)(uintptr_t)&op_cases[i]};
	tests[op_cases_count] = (struct CMUnitTest)cmocka_unit_test(check_gemm_gelu);
	bench_open(&bench, &backend_cpu, "plain", 1);
	int failed = _cmocka_run_group_tests("types", tests, (size_t)op_cases_count + 1, NULL, NULL);
	bench_close(&bench);
	free(tests);
	return failed;
}

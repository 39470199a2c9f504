#include "again.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "cases.h"

static struct bench bench;
static enum dtype first;

static void take(struct call *to, const char *name, struct call *from, const char *source)
{
	struct arg *a = call_find(to, name), *b = call_find(from, source);
	assert_int_equal(a->count, b->count);
	memcpy(a->values, b->role == IN ? b->values : b->result, (size_t)a->count * sizeof(double));
}

static void same(struct call *a, struct call *b, const char *name)
{
	struct arg *x = call_find(a, name), *y = call_find(b, name);
	for (int64_t i = 0; i < x->count; i++)
		if (memcmp(&x->result[i], &y->result[i], sizeof(double)) != 0)
			fail_msg("%s in %s: %s[%lld] was %.17g, again it is %.17g", a->text, dtype_name(a->storage), name,
				 (long long)i, x->result[i], y->result[i]);
}

static void check_residual_norm(void **state)
{
	static const int64_t sizes[][SIZE_DIMS] = {{2, 9, 33}, {3, 7, 1}, {1, 40, 768}};
	for (enum dtype type = first; type <= F16; type++)
		for (unsigned which = 0; which < 6; which++) {
			const int64_t *size = sizes[which / 2];
			bool rms = which % 2;
			struct call fused, norm;
			case_build(&fused, case_residual_forward, type, type, size,
				   RESIDUAL_BIAS | RESIDUAL_DROPOUT | RESIDUAL_NORM | (rms ? RESIDUAL_RMS : 0));
			call_run(&bench, &fused, 0);
			case_build(&norm, case_norm_forward, type, type, (int64_t[SIZE_DIMS]){size[0] * size[1], size[2]},
				   rms ? NORM_IS_RMS | NORM_NO_BIAS : 0);
			snprintf(fused.text, sizeof fused.text, "norm %u", which);
			take(&norm, "x", &fused, "sum");
			take(&norm, "weight", &fused, "norm_weight");
			if (!rms)
				take(&norm, "bias", &fused, "norm_bias");
			call_run(&bench, &norm, 0);
			same(&fused, &norm, "out");
			same(&fused, &norm, "rstd");
			if (!rms)
				same(&fused, &norm, "mean");
			call_finish(&fused);
			call_finish(&norm);
		}
}

static void check_product_gelu(void **state)
{
	static const int64_t sizes[][SIZE_DIMS] = {{1, 40, 65}, {33, 3, 100}, {140, 17, 771}};
	static const unsigned cases[] = {GEMM_CASE_TANH, GEMM_CASE_ERF, GEMM_CASE_NO_BIAS};
	for (enum dtype type = first; type <= F16; type++)
		for (unsigned which = 0; which < 9; which++) {
			const int64_t *size = sizes[which / 3];
			struct call product, gelu;
			case_build(&product, case_gemm, type, type, size, GEMM_STEP * cases[which % 3]);
			case_build(&gelu, case_gelu_forward, type, type, (int64_t[SIZE_DIMS]){size[0], size[2]},
				   cases[which % 3] == GEMM_CASE_ERF ? GELU_IS_ERF : 0);
			snprintf(product.text, sizeof product.text, "gelu %u", which);
			call_run(&bench, &product, 0);
			take(&gelu, "x", &product, "aux");
			call_run(&bench, &gelu, 0);
			same(&product, &gelu, "out");
			call_run(&bench, &gelu, 1);
			same(&product, &gelu, "out");
			call_finish(&product);
			call_finish(&gelu);
		}
}

int again_run(const struct backend *backend, const char *column, enum dtype widest)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_residual_norm),
		cmocka_unit_test(check_product_gelu),
	};
	first = widest;
	bench_open(&bench, backend, column, 2);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	bench_close(&bench);
	return failed;
}

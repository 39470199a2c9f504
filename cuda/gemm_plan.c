#include "gemm_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card.h"
#include "stopwatch.h"

static cudaDataType_t data_type(enum dtype t)
{
	return t == F16 ? CUDA_R_16F : t == BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtMatrixLayout_t layout(enum dtype t, int64_t rows, int64_t columns, int64_t stride)
{
	cublasLtMatrixLayout_t l;
	GEMM_CALL(cublasLtMatrixLayoutCreate(&l, data_type(t), (uint64_t)rows, (uint64_t)columns, stride));
	return l;
}

static void set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
	GEMM_CALL(cublasLtMatmulDescSetAttribute(d, what, value, bytes));
}

static void prefer(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes)
{
	GEMM_CALL(cublasLtMatmulPreferenceSetAttribute(p, what, value, bytes));
}

static void point(struct gemm_plan *p, const struct gemm_operands *o)
{
	if (p->key.align_aux)
		set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->aux, sizeof o->aux);
	if (p->key.align_bias)
		set(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias);
}

/* The library's offers within the rules, its best guess first: no timing, so they are the same on every rank. */
static void ask(cublasLtHandle_t handle, struct gemm_plan *p)
{
	cublasLtMatmulPreference_t preference;
	cublasLtMatmulHeuristicResult_t results[GEMM_OFFERS];
	size_t workspace = GEMM_LIBRARY;
	uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	uint32_t a = (uint32_t)p->key.align_b, b = (uint32_t)p->key.align_a, out = (uint32_t)p->key.align_out;
	int found = 0;
	GEMM_CALL(cublasLtMatmulPreferenceCreate(&preference));
	prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
	prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out);
	GEMM_CALL(cublasLtMatmulAlgoGetHeuristic(handle, p->product, p->a, p->b, p->out, p->out, preference, GEMM_OFFERS,
						 results, &found));
	cublasLtMatmulPreferenceDestroy(preference);
	for (int i = 0; i < found; i++)
		if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= GEMM_LIBRARY)
			p->offers[p->offer_count++] = results[i].algo;
	if (p->offer_count == 0)
		die(CODE_MACHINE, "gemm: cuBLASLt has no algorithm for [%lld, %lld]·[%lld, %lld] in %s", (long long)p->key.m,
		    (long long)p->key.k, (long long)p->key.k, (long long)p->key.n, dtype_name((enum dtype)p->key.type));
	p->algorithm = p->offers[0];
}

/* The library counts in columns. A row-major [r, c] is its [c, r], so outᵀ = op(b)ᵀ·op(a)ᵀ: b is its A, a its B. */
struct gemm_plan *gemm_plan_open(cublasLtHandle_t handle, const struct gemm_key *key, const struct gemm_operands *o)
{
	struct gemm_plan *p = calloc(1, sizeof *p);
	check(p);
	p->key = *key;
	enum dtype type = (enum dtype)key->type;
	cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
	cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)key->epilogue;
	GEMM_CALL(cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	set(p->product, CUBLASLT_MATMUL_DESC_TRANSA, key->b_transposed ? &transposed : &plain, sizeof plain);
	set(p->product, CUBLASLT_MATMUL_DESC_TRANSB, key->a_transposed ? &transposed : &plain, sizeof plain);
	set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
	if (key->align_aux)
		set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->n, sizeof key->n);
	point(p, o);
	p->a = key->b_transposed ? layout(type, key->k, key->n, key->k) : layout(type, key->n, key->k, key->n);
	p->b = key->a_transposed ? layout(type, key->m, key->k, key->stride_a) : layout(type, key->k, key->m, key->stride_a);
	p->out = layout((enum dtype)key->out_type, key->n, key->m, key->n);
	ask(handle, p);
	return p;
}

void gemm_plan_close(struct gemm_plan *p)
{
	cublasLtMatmulDescDestroy(p->product);
	cublasLtMatrixLayoutDestroy(p->a);
	cublasLtMatrixLayoutDestroy(p->b);
	cublasLtMatrixLayoutDestroy(p->out);
	free(p);
}

cublasStatus_t gemm_plan_run(cublasLtHandle_t handle, struct gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
			     const struct gemm_operands *o, const struct kernel_place *k)
{
	float alpha = 1, beta = p->key.accumulate ? 1 : 0;
	point(p, o);
	p->latest = *o;
	return cublasLtMatmul(handle, p->product, &alpha, o->b, p->a, o->a, p->b, &beta, o->out, p->out, o->out, p->out, algorithm,
			      k->workspace, GEMM_LIBRARY, k->stream);
}

/* An algorithm to be timed. */
struct trial {
	cublasLtHandle_t handle;
	struct gemm_plan *plan;
	const cublasLtMatmulAlgo_t *algorithm;
	struct gemm_operands operands;
	const struct kernel_place *place;
};

static bool run_once(const void *context)
{
	const struct trial *t = context;
	return gemm_plan_run(t->handle, t->plan, t->algorithm, &t->operands, t->place) == CUBLAS_STATUS_SUCCESS;
}

void gemm_plan_time(cublasLtHandle_t handle, struct gemm_plan *p, const struct kernel_place *k)
{
	float best = -1;
	for (int i = 0; i < p->offer_count; i++) {
		struct trial t = {handle, p, &p->offers[i], p->latest, k};
		float ms = stopwatch(k->stream, run_once, &t);
		if (ms < 0 || (best >= 0 && ms >= best))
			continue;
		best = ms;
		p->algorithm = p->offers[i];
	}
	p->fixed = true;
}

void gemm_plan_key(char out[TUNING_KEY], const struct gemm_plan *p)
{
	const struct gemm_key *k = &p->key;
	int n = snprintf(out, TUNING_KEY, "gemm %s %lldx%lldx%lld %c%c stride %lld %s%s epilogue %d align %d.%d.%d.%d.%d",
			 dtype_name((enum dtype)k->type), (long long)k->m, (long long)k->n, (long long)k->k,
			 k->a_transposed ? 't' : 'n', k->b_transposed ? 't' : 'n', (long long)k->stride_a, k->accumulate ? "+" : "",
			 dtype_name((enum dtype)k->out_type), k->epilogue, k->align_a, k->align_b, k->align_out, k->align_aux,
			 k->align_bias);
	check(n < TUNING_KEY);
}

void gemm_plan_value(char out[TUNING_VALUE], const struct gemm_plan *p, int capability)
{
	int n = snprintf(out, TUNING_VALUE, "cublaslt %zu sm_%d ", cublasLtGetVersion(), capability);
	for (size_t i = 0; i < sizeof p->algorithm.data / sizeof *p->algorithm.data; i++)
		n += snprintf(out + n, (size_t)(TUNING_VALUE - n), "%016llx", (unsigned long long)p->algorithm.data[i]);
	check(n < TUNING_VALUE);
}

bool gemm_plan_take(cublasLtHandle_t handle, struct gemm_plan *p, const char *value, int capability)
{
	char start[TUNING_VALUE], digits[17] = {0};
	cublasLtMatmulAlgo_t algorithm;
	cublasLtMatmulHeuristicResult_t result;
	int n = snprintf(start, sizeof start, "cublaslt %zu sm_%d ", cublasLtGetVersion(), capability);
	size_t words = sizeof algorithm.data / sizeof *algorithm.data;
	if (strncmp(value, start, (size_t)n) != 0 || strlen(value + n) != 16 * words ||
	    strspn(value + n, "0123456789abcdef") != 16 * words)
		return false;
	for (size_t i = 0; i < words; i++) {
		memcpy(digits, value + n + 16 * i, 16);
		algorithm.data[i] = strtoull(digits, NULL, 16);
	}
	if (cublasLtMatmulAlgoCheck(handle, p->product, p->a, p->b, p->out, p->out, &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
	    result.workspaceSize > GEMM_LIBRARY)
		return false;
	p->algorithm = algorithm;
	p->fixed = true;
	return true;
}

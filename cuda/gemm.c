#include "gemm.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS = 4096, ALIGN_MOST = 256 };

/* What a plan is for. Compared as bytes: made from zeroed memory. */
struct key {
	int64_t m, n, k, stride_a; /* stride_a: elements from one stored row of a to the next */
	int type, out_type, epilogue;
	bool a_transposed, b_transposed;
	int align_a, align_b, align_out, align_aux;
};

struct plan {
	struct key key;
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t a, b, out;
	cublasLtMatmulAlgo_t algorithm;
};

struct gemm {
	cublasLtHandle_t handle;
	struct plan *plans[PLANS]; /* open addressing */
	int count;
};

#define CALL(call)                                                                                             \
	do {                                                                                                   \
		cublasStatus_t status = (call);                                                                \
		if (status != CUBLAS_STATUS_SUCCESS)                                                           \
			die(CODE_MACHINE, "%s:%d: %s: %s", __FILE__, __LINE__, #call, cublasLtGetStatusString(status)); \
	} while (0)

bool gemm_open(struct gemm **out, struct error *e)
{
	struct gemm *g = calloc(1, sizeof *g);
	if (!g)
		return error_set(e, CODE_MACHINE, "out of memory");
	cublasStatus_t status = cublasLtCreate(&g->handle);
	if (status != CUBLAS_STATUS_SUCCESS) {
		free(g);
		return error_set(e, CODE_MACHINE, "cuBLASLt: %s", cublasLtGetStatusString(status));
	}
	*out = g;
	return true;
}

void gemm_close(struct gemm *g)
{
	if (!g)
		return;
	for (int i = 0; i < PLANS; i++) {
		struct plan *p = g->plans[i];
		if (!p)
			continue;
		cublasLtMatmulDescDestroy(p->product);
		cublasLtMatrixLayoutDestroy(p->a);
		cublasLtMatrixLayoutDestroy(p->b);
		cublasLtMatrixLayoutDestroy(p->out);
		free(p);
	}
	cublasLtDestroy(g->handle);
	free(g);
}

static cudaDataType_t data_type(enum dtype t)
{
	return t == F16 ? CUDA_R_16F : t == BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The largest power of two up to ALIGN_MOST that divides the address. */
static int alignment(const void *p)
{
	int align = ALIGN_MOST;
	while ((uintptr_t)p % (uintptr_t)align)
		align /= 2;
	return align;
}

static cublasLtMatrixLayout_t layout(enum dtype t, int64_t rows, int64_t columns, int64_t stride)
{
	cublasLtMatrixLayout_t l;
	CALL(cublasLtMatrixLayoutCreate(&l, data_type(t), (uint64_t)rows, (uint64_t)columns, stride));
	return l;
}

static void set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
	CALL(cublasLtMatmulDescSetAttribute(d, what, value, bytes));
}

static void prefer(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes)
{
	CALL(cublasLtMatmulPreferenceSetAttribute(p, what, value, bytes));
}

/* The library's own first choice within the rules: no timing, so it is the same on every rank and in every run. */
static void choose(struct gemm *g, struct plan *p)
{
	cublasLtMatmulPreference_t preference;
	cublasLtMatmulHeuristicResult_t result;
	size_t workspace = GEMM_LIBRARY;
	uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	uint32_t a = (uint32_t)p->key.align_b, b = (uint32_t)p->key.align_a, out = (uint32_t)p->key.align_out;
	int found = 0;
	CALL(cublasLtMatmulPreferenceCreate(&preference));
	prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
	prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out);
	prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out);
	CALL(cublasLtMatmulAlgoGetHeuristic(g->handle, p->product, p->a, p->b, p->out, p->out, preference, 1, &result, &found));
	cublasLtMatmulPreferenceDestroy(preference);
	if (!found)
		die(CODE_MACHINE, "gemm: cuBLASLt has no algorithm for [%lld, %lld]·[%lld, %lld] in %s", (long long)p->key.m,
		    (long long)p->key.k, (long long)p->key.k, (long long)p->key.n, dtype_name((enum dtype)p->key.type));
	p->algorithm = result.algo;
}

/* The library counts in columns. A row-major [r, c] is its [c, r], so outᵀ = op(b)ᵀ·op(a)ᵀ: b is its A, a its B. */
static struct plan *make(struct gemm *g, const struct key *key)
{
	struct plan *p = calloc(1, sizeof *p);
	check(p);
	p->key = *key;
	enum dtype type = (enum dtype)key->type;
	cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
	cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)key->epilogue;
	CALL(cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	set(p->product, CUBLASLT_MATMUL_DESC_TRANSA, key->b_transposed ? &transposed : &plain, sizeof plain);
	set(p->product, CUBLASLT_MATMUL_DESC_TRANSB, key->a_transposed ? &transposed : &plain, sizeof plain);
	set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
	if (key->align_aux)
		set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->n, sizeof key->n);
	p->a = key->b_transposed ? layout(type, key->k, key->n, key->k) : layout(type, key->n, key->k, key->n);
	p->b = key->a_transposed ? layout(type, key->m, key->k, key->stride_a) : layout(type, key->k, key->m, key->stride_a);
	p->out = layout((enum dtype)key->out_type, key->n, key->m, key->n);
	choose(g, p);
	return p;
}

static struct plan *plan_for(struct gemm *g, const struct key *key)
{
	uint64_t hash = 1469598103934665603u;
	for (size_t i = 0; i < sizeof *key; i++)
		hash = (hash ^ ((const unsigned char *)key)[i]) * 1099511628211u;
	int at = (int)(hash % PLANS);
	while (g->plans[at] && memcmp(&g->plans[at]->key, key, sizeof *key) != 0)
		at = (at + 1) % PLANS;
	if (!g->plans[at]) {
		check(++g->count < PLANS);
		g->plans[at] = make(g, key);
	}
	return g->plans[at];
}

/* out = op(a)·op(b) for rows `first` … of op(a), with what the library does behind the product. */
static void multiply(struct gemm *g, const struct kernel_place *k, const struct op_gemm *a, int64_t first, int64_t rows,
		     void *out, enum dtype out_type, cublasLtEpilogue_t epilogue)
{
	bool gelu = epilogue == CUBLASLT_EPILOGUE_DGELU, bias = epilogue == CUBLASLT_EPILOGUE_BIAS;
	int64_t skipped = a->a_transposed ? first : first * a->a.shape[1];
	const void *from = (const char *)a->a.data + (size_t)skipped * dtype_size(a->a.dtype);

	struct key key;
	memset(&key, 0, sizeof key);
	key.m = rows;
	key.n = a->out.shape[1];
	key.k = a->a.shape[a->a_transposed ? 0 : 1];
	key.stride_a = a->a.shape[1];
	key.type = (int)a->a.dtype;
	key.out_type = (int)out_type;
	key.epilogue = (int)epilogue;
	key.a_transposed = a->a_transposed;
	key.b_transposed = a->b_transposed;
	key.align_a = alignment(from);
	key.align_b = alignment(a->b.data);
	key.align_out = alignment(out);
	key.align_aux = gelu ? alignment(a->aux.data) : 0;

	struct plan *p = plan_for(g, &key);
	if (gelu)
		set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &a->aux.data, sizeof a->aux.data);
	if (bias)
		set(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias.data, sizeof a->bias.data);
	float alpha = 1, beta = a->accumulate ? 1 : 0;
	CALL(cublasLtMatmul(g->handle, p->product, &alpha, a->b.data, p->a, from, p->b, &beta, out, p->out, out, p->out,
			    &p->algorithm, k->workspace, GEMM_LIBRARY, k->stream));
}

/* The library's epilogues know the tanh form and rows of whole 16 bytes. */
static bool library_knows(const struct op_gemm *a)
{
	return a->gelu == GELU_TANH && a->out.shape[1] % 8 == 0 && alignment(a->aux.data) >= 16 && alignment(a->out.data) >= 16;
}

/* Not the library's GELU: a GELU that is computed again from aux must have the same bits. */
static void forward_gelu(struct gemm *g, const struct kernel_place *k, const struct op_gemm *a)
{
	multiply(g, k, a, 0, a->out.shape[0], a->aux.data, a->aux.dtype,
		 tensor_given(a->bias) ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
	kernel_gelu_forward(k, &(struct op_gelu_forward){.out = a->out, .x = a->aux, .gelu = a->gelu});
}

static void backward_gelu(struct gemm *g, const struct kernel_place *k, const struct op_gemm *a)
{
	int64_t m = a->out.shape[0], n = a->out.shape[1], block = GEMM_PRODUCTS / (n * (int64_t)sizeof(float));
	float *products = (float *)((char *)k->workspace + GEMM_LIBRARY);
	if (library_knows(a)) {
		multiply(g, k, a, 0, m, a->out.data, a->out.dtype, CUBLASLT_EPILOGUE_DGELU);
		return;
	}
	check(block > 0);
	block = block > 128 ? block / 128 * 128 : block; /* whole tiles */
	for (int64_t first = 0; first < m; first += block) {
		int64_t rows = m - first < block ? m - first : block;
		multiply(g, k, a, first, rows, products, F32, CUBLASLT_EPILOGUE_DEFAULT);
		kernel_gelu_backward(k, tensor_rows(a->out, first, rows), products, tensor_rows(a->aux, first, rows), a->gelu);
	}
}

void gemm_run(struct gemm *g, const struct kernel_place *k, const struct op_gemm *a)
{
	if (a->epilogue == GEMM_BIAS_GELU)
		forward_gelu(g, k, a);
	else if (a->epilogue == GEMM_DGELU)
		backward_gelu(g, k, a);
	else
		multiply(g, k, a, 0, a->out.shape[0], a->out.data, a->out.dtype,
			 a->epilogue == GEMM_BIAS ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
}

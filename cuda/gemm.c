#include "gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "gemm_plan.h"

enum { PLANS = 4096, ALIGN_MOST = 256 };

struct gemm {
	cublasLtHandle_t handle;
	int capability;                 /* 90: compute capability 9.0 */
	struct gemm_plan *plans[PLANS]; /* open addressing */
	int count;
	struct tuning told;             /* choices that plans must take */
	bool chosen;                    /* what it is told from now on is what ranks have agreed on */
	bool said;                      /* that it cannot have one of those */
};

bool gemm_open(struct gemm **out, int capability, struct error *e)
{
	struct gemm *g = calloc(1, sizeof *g);
	if (!g)
		return error_set(e, CODE_MACHINE, "out of memory");
	cublasStatus_t status = cublasLtCreate(&g->handle);
	if (status != CUBLAS_STATUS_SUCCESS) {
		free(g);
		return error_set(e, CODE_MACHINE, "cuBLASLt: %s", cublasLtGetStatusString(status));
	}
	g->capability = capability;
	*out = g;
	return true;
}

void gemm_close(struct gemm *g)
{
	if (!g)
		return;
	for (int i = 0; i < PLANS; i++)
		if (g->plans[i])
			gemm_plan_close(g->plans[i]);
	cublasLtDestroy(g->handle);
	tuning_finish(&g->told);
	free(g);
}

/* The largest power of two up to ALIGN_MOST that divides the address; 0: none is given. */
static int alignment(const void *p)
{
	int align = ALIGN_MOST;
	if (!p)
		return 0;
	while ((uintptr_t)p % (uintptr_t)align)
		align /= 2;
	return align;
}

/* What a plan was told, if anything. */
static void obey(struct gemm *g, struct gemm_plan *p)
{
	char key[TUNING_KEY];
	gemm_plan_key(key, p);
	const char *value = tuning_find(&g->told, key);
	if (!value || gemm_plan_take(g->handle, p, value, g->capability) || !g->chosen || g->said)
		return;
	g->said = true;
	log_warn("rank %d cannot have an algorithm of matrix products that all had agreed on, and uses its own: where ranks differ, the "
		 "last bits of losses depend on which rank computes what (%s: %.40s...)", log_rank(), key, value);
}

static struct gemm_plan *plan_for(struct gemm *g, const struct gemm_key *key, const struct gemm_operands *o)
{
	uint64_t hash = 1469598103934665603u;
	for (size_t i = 0; i < sizeof *key; i++)
		hash = (hash ^ ((const unsigned char *)key)[i]) * 1099511628211u;
	int at = (int)(hash % PLANS);
	while (g->plans[at] && memcmp(&g->plans[at]->key, key, sizeof *key) != 0)
		at = (at + 1) % PLANS;
	if (!g->plans[at]) {
		check(++g->count < PLANS);
		g->plans[at] = gemm_plan_open(g->handle, key, o);
		obey(g, g->plans[at]);
	}
	return g->plans[at];
}

void gemm_told(struct gemm *g, const struct tuning *t)
{
	for (int i = 0; i < t->count; i++)
		tuning_set(&g->told, t->list[i].key, t->list[i].value);
	for (int i = 0; i < PLANS; i++)
		if (g->plans[i])
			obey(g, g->plans[i]);
}

void gemm_choose(struct gemm *g, const struct kernel_place *k, struct tuning *own, bool timed)
{
	char key[TUNING_KEY], value[TUNING_VALUE];
	g->chosen = true;
	for (int i = 0; i < PLANS; i++) {
		struct gemm_plan *p = g->plans[i];
		if (!p)
			continue;
		if (timed && !p->fixed)
			gemm_plan_time(g->handle, p, k);
		gemm_plan_key(key, p);
		gemm_plan_value(value, p, g->capability);
		tuning_set(own, key, value);
	}
}

/* out = op(a)·op(b) for rows `first` … of op(a), with what the library does behind the product. */
static void multiply(struct gemm *g, const struct kernel_place *k, const struct op_gemm *a, int64_t first, int64_t rows,
		     void *out, enum dtype out_type, cublasLtEpilogue_t epilogue)
{
	bool gelu = epilogue == CUBLASLT_EPILOGUE_DGELU, bias = epilogue == CUBLASLT_EPILOGUE_BIAS;
	int64_t skipped = a->a_transposed ? first : first * a->a.shape[1];
	struct gemm_operands o = {
		.a = (const char *)a->a.data + (size_t)skipped * dtype_size(a->a.dtype), .b = a->b.data, .out = out,
		.bias = bias ? a->bias.data : NULL, .aux = gelu ? a->aux.data : NULL,
	};
	struct gemm_key key;
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
	key.accumulate = a->accumulate;
	key.align_a = alignment(o.a);
	key.align_b = alignment(o.b);
	key.align_out = alignment(o.out);
	key.align_aux = alignment(o.aux);
	key.align_bias = alignment(o.bias);
	struct gemm_plan *p = plan_for(g, &key, &o);
	GEMM_CALL(gemm_plan_run(g->handle, p, &p->algorithm, &o, k));
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

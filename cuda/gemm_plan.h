/* gemm_plan.h: how one kind of matrix product is computed: descriptors, and the algorithm, of a few that the library offers.
 *
 * The library's first offer stands until a plan is timed, or told what to take. An algorithm is kept as text: the library's
 * own bytes, with its version and the card's capability, since they mean something to that library alone.
 *
 * Used by gemm.c. */
#ifndef MTRAIN_CUDA_GEMM_PLAN_H
#define MTRAIN_CUDA_GEMM_PLAN_H

#include <cublasLt.h>

#include "dev/tuning.h"
#include "gemm.h"

enum { GEMM_OFFERS = 8 };

/* What a plan is for. Compared as bytes: made from zeroed memory. */
struct gemm_key {
	int64_t m, n, k, stride_a; /* stride_a: elements from one stored row of a to the next */
	int type, out_type, epilogue;
	bool a_transposed, b_transposed, accumulate;
	int align_a, align_b, align_out, align_aux, align_bias;
};

/* One call's memory. */
struct gemm_operands {
	const void *a, *b, *bias;
	void *out, *aux;
};

struct gemm_plan {
	struct gemm_key key;
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t a, b, out;
	cublasLtMatmulAlgo_t algorithm, offers[GEMM_OFFERS];
	int offer_count;
	bool fixed;                  /* told, or timed already */
	struct gemm_operands latest; /* of the call before this one: what timing runs on */
};

#define GEMM_CALL(call)                                                                                        \
	do {                                                                                                   \
		cublasStatus_t status = (call);                                                                \
		if (status != CUBLAS_STATUS_SUCCESS)                                                           \
			die(CODE_MACHINE, "%s:%d: %s: %s", __FILE__, __LINE__, #call, cublasLtGetStatusString(status)); \
	} while (0)

struct gemm_plan *gemm_plan_open(cublasLtHandle_t handle, const struct gemm_key *key, const struct gemm_operands *o);
void gemm_plan_close(struct gemm_plan *p);

cublasStatus_t gemm_plan_run(cublasLtHandle_t handle, struct gemm_plan *p, const cublasLtMatmulAlgo_t *algorithm,
			     const struct gemm_operands *o, const struct kernel_place *k);

/* Takes the fastest of the offers, on the operands of the latest call, which it spoils. Blocks. */
void gemm_plan_time(cublasLtHandle_t handle, struct gemm_plan *p, const struct kernel_place *k);

void gemm_plan_key(char out[TUNING_KEY], const struct gemm_plan *p);
void gemm_plan_value(char out[TUNING_VALUE], const struct gemm_plan *p, int capability);

/* Takes the algorithm of a value; false: it is of another library or card, or cannot be used here. */
bool gemm_plan_take(cublasLtHandle_t handle, struct gemm_plan *p, const char *value, int capability);

#endif

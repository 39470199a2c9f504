/* gemm.h: matrix products by cuBLASLt.
 *
 * A plan for each combination of shape, layout, type, epilogue and alignment that has been asked for (gemm_plan.h). Its
 * algorithm is chosen once, so that a shape always gives the same bits. Split sums are only allowed in FP32. F16 and BF16
 * accumulate in FP32; F32 is true FP32. GELU is our kernel's, so that it can be had again from aux
 * in the same bits; its gradient is cuBLASLt's epilogue in the tanh form where rows allow it, else our kernel's behind an
 * FP32 product, a block of rows at a time.
 *
 * Owns its plans and the library's handle. Used by the backend. */
#ifndef MTRAIN_CUDA_GEMM_H
#define MTRAIN_CUDA_GEMM_H

#include "dev/tuning.h"
#include "kernels.h"

struct gemm;

/* Bytes at the place's workspace: for the library, and behind it for products in F32 whose epilogue is our kernel's. */
enum { GEMM_LIBRARY = 32 << 20, GEMM_PRODUCTS = WORKSPACE_GEMM - GEMM_LIBRARY };

/* capability: 90 for compute capability 9.0. Fails: CODE_MACHINE. */
bool gemm_open(struct gemm **g, int capability, struct error *e);
void gemm_close(struct gemm *g);                  /* NULL is fine */
void gemm_run(struct gemm *g, const struct kernel_place *k, const struct op_gemm *a);


/* Adds what each plan has chosen; timed: times those first that were neither told nor timed, on the operands of their latest
 * call, which are spoilt. Blocks. */
void gemm_choose(struct gemm *g, const struct kernel_place *k, struct tuning *own, bool timed);

/* Choices that plans take, those there are and those to come. A choice that means nothing here is passed over. */
void gemm_told(struct gemm *g, const struct tuning *t);

#endif

/* kernels.h: the kernels as plain C sees them: one function an op of the book, which queues its kernels on a stream.
 *
 * Definitions are those of dev/ops.h; types F16, BF16 and F32 (sums in F32, never F64 or TF32 products). Each kernel
 * passes over its memory once, in 16-byte loads where rows allow it (row length a multiple of 16 bytes, pointers
 * aligned to 16; else it goes element by element), adds in an order that the shapes fix, and uses no atomics: same
 * inputs, same bits. Nothing is allocated. A launch that fails ends the run through die().
 *
 * gemm is not here: cuBLASLt computes it, with gelu_forward behind it, and the helper below where its epilogues cannot.
 * Used by the CUDA backend and by the tests that run kernels on the emulator. */
#ifndef MTRAIN_CUDA_KERNELS_H
#define MTRAIN_CUDA_KERNELS_H

#ifdef __cplusplus
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define _Noreturn [[noreturn]]
#endif

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "dev/ops.h"
#include "dev/workspace.h"

/* Where an op runs: its stream, room for partial sums, and the step's scalars, both in device memory. */
struct kernel_place {
	cudaStream_t stream;
	void *workspace; /* workspace_kernels bytes, aligned to 256 */
	struct scalars *scalars;
};

/* Loads every kernel of the program, which would else happen when it is first launched and may then hold the card. */
cudaError_t kernel_load(void);

/* DIRECT: what an op of a card queues; the others are what it queues where no library's are taken (attention_pick.h). */
#define KERNELS_DIRECT(X)                                                                                   \
	X(embedding_forward) X(embedding_backward) X(position_forward) X(position_backward) X(norm_forward) \
	X(residual_forward) X(norm_backward) X(residual_backward) X(gelu_forward) X(bias_backward)          \
	X(swiglu_forward) X(swiglu_backward) X(rope)                                                        \
	X(unit_rows_forward) X(unit_rows_backward)                                                          \
	X(attention_part_forward) X(attention_part_backward) X(attention_delta)       \
	X(heads_copy) X(loss_stats) X(loss_combine) X(loss_backward) X(loss_total) X(add)           \
	X(convert) X(square_sums) X(step_verdict) X(adamw)
#define KERNELS(X) KERNELS_DIRECT(X) X(attention_forward) X(attention_backward)
#define KERNEL_DECLARE(name) void kernel_##name(const struct kernel_place *k, const struct op_##name *a);
KERNELS(KERNEL_DECLARE)
#undef KERNEL_DECLARE

/* dx = product·gelu'(aux), the product in F32, so that it is rounded once. */
void kernel_gelu_backward(const struct kernel_place *k, struct tensor dx, const float *product, struct tensor aux,
			  enum gelu_kind kind);

#ifdef __cplusplus
}
#endif

#endif

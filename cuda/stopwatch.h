/* stopwatch.h: how long something takes on a stream, by the card's own clock.
 *
 * Used by gemm_plan.c and attention_agree.c to choose among ways of computing the same. */
#ifndef MTRAIN_CUDA_STOPWATCH_H
#define MTRAIN_CUDA_STOPWATCH_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

/* Milliseconds of what `once` queues on the stream: the mean of a few calls behind a first one, which loads kernels; that
 * first one alone where it takes long. Negative: once has returned false, it cannot be run. Blocks. */
float stopwatch(cudaStream_t stream, bool (*once)(const void *context), const void *context);

#endif

/* workspace.h: bytes that the ops of a CUDA card use inside, by the largest shapes that they are called with: what a card
 * takes at dev_reserve, and what the planner counts without one.
 *
 * The parts take turns on one stream, so the largest counts. Pure functions. Used by the CUDA backend and the planner. */
#ifndef MTRAIN_DEV_WORKSPACE_H
#define MTRAIN_DEV_WORKSPACE_H

#include "dev/device.h"

enum {
	WORKSPACE_GEMM = 64 << 20,      /* matrix products */
	WORKSPACE_NORM_SUMS = 1 << 21,  /* F32 partial sums of norm_backward, of each of its two gradients */
};

/* What our own kernels manage with. */
size_t workspace_kernels(const struct dev_limits *limits);

/* What cuDNN's attention may make use of; 0: no call is one that it could compute. */
size_t workspace_cudnn(const struct dev_limits *limits);

/* All of it. attention: bytes of another library's attention, 0 where there is none. */
size_t workspace_cuda(const struct dev_limits *limits, size_t attention);

#endif

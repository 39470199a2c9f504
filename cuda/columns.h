/* columns.h: the second stage of a sum over rows.
 *
 * The first stage leaves partial sums [parts, C]; which rows a part holds depends on the shape alone, and parts are
 * added in a fixed order: the same bits every time. Used by the kernels that form gradients of biases and norms. */
#ifndef MTRAIN_CUDA_COLUMNS_H
#define MTRAIN_CUDA_COLUMNS_H

#include "launch.h"

/* sum[c] += Σ_p partial[p, c], and the same for a second sum (NULL: none) whose parts follow those of the first. */
void columns_finish(const struct kernel_place *k, float *sum, float *second, const float *partial, int64_t parts,
		    int64_t C);

#endif

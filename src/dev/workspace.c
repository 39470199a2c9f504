#include "dev/workspace.h"

/* On sm_90 cuDNN's deterministic backward keeps the scores' gradient: 2 bytes a pair of a head, tokens rounded up to 128, and
 * for grouped heads 8 bytes a token, head and element of it beside, gradients of keys and values in F32 before they are summed
 * (what its plans say of themselves: tests/cudnn/test_plans.c). So 2.5 bytes a pair and 16 MiB are taken: for all of a
 * micro-batch to 528 MiB, beyond which it is computed some KV groups a call, or at least for one group, to 1296 MiB; where one
 * needs more it is left to our kernels. */
enum { CUDNN_USUAL = 528 << 20, CUDNN_MOST = 1296 << 20, CUDNN_BESIDE = 16 << 20 };

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

size_t workspace_kernels(const struct dev_limits *limits)
{
	int64_t sums = limits->width > WORKSPACE_NORM_SUMS ? limits->width : WORKSPACE_NORM_SUMS;
	if (sums > limits->rows * limits->width)
		sums = limits->rows * limits->width;
	return larger(2 * sizeof(float) * (size_t)sums, (size_t)1 << 20 /* square_sums, bias_backward */);
}

static double bytes_of(double scores)
{
	return scores > 0 ? 2.5 * scores + CUDNN_BESIDE : 0;
}

size_t workspace_cudnn(const struct dev_limits *limits)
{
	double all = bytes_of(limits->scores), group = bytes_of(limits->group_scores);
	if (group > CUDNN_MOST)
		return 0;
	return larger((size_t)(all < CUDNN_USUAL ? all : CUDNN_USUAL), (size_t)group);
}

size_t workspace_cuda(const struct dev_limits *limits, size_t attention)
{
	return larger(larger(workspace_kernels(limits), WORKSPACE_GEMM), attention);
}

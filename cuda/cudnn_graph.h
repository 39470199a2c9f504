/* cudnn_graph.h: causal attention as graphs of cuDNN's backend API: products, operations element by element and reductions,
 * in the pattern that its fused engines know.
 *
 * cuDNN wants heads one stride apart. Those of qkv [N, KV, G + 2, D] are that where G or KV is 1, and one call can then be all
 * samples. Else, and where the library's workspace would be too large for all, a call is some KV groups of one sample, each
 * an entry of the batch. Backward writes dq by one product of the whole ds and never adds to it, which is what makes the
 * engines deterministic; on sm_90 ds then lies in the workspace.
 *
 * Used by cudnn_plan.c. */
#ifndef MTRAIN_CUDA_CUDNN_GRAPH_H
#define MTRAIN_CUDA_CUDNN_GRAPH_H

#include "attention_pick.h"
#include "cudnn_part.h"

/* Tensors in memory, by their numbers in a graph; the last three are one F32 each, in the host's memory. */
enum cudnn_tensor {
	CUDNN_Q = 1, CUDNN_K, CUDNN_V, CUDNN_OUT, CUDNN_LSE, CUDNN_DOUT, CUDNN_DELTA, CUDNN_DQ, CUDNN_DK, CUDNN_DV,
	CUDNN_SCALE, CUDNN_MINUS_INFINITY, CUDNN_ONE, CUDNN_TENSORS
};

/* groups: KV groups of one sample in a call; 0: all of all samples. The finished graph. handle NULL: for a card that is
 * described to the plan. */
cudnnBackendDescriptor_t cudnn_graph_forward(struct cudnn_parts *p, cudnnHandle_t handle, const struct attention_key *key,
					     int64_t groups);
cudnnBackendDescriptor_t cudnn_graph_backward(struct cudnn_parts *p, cudnnHandle_t handle, const struct attention_key *key,
					      int64_t groups);

#endif

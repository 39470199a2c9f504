/* cudnn_attention.h: cuDNN's fused attention as another one beside ours (attention_pick.h).
 *
 * It serves the calls that are handed to it on sm_90 and later, with head sizes that divide by 8. Its deterministic backward keeps
 * the gradient of the scores on sm_90, 2 bytes a pair of tokens and head, so the workspace is large, and a long sequence is
 * computed some KV groups a call.
 *
 * cudnn_attention.c is it, over cudnn_plan.h; cudnn_attention_none.c stands in where the program is built without cuDNN.
 * Used by device.c. */
#ifndef MTRAIN_CUDA_CUDNN_ATTENTION_H
#define MTRAIN_CUDA_CUDNN_ATTENTION_H

#include "attention_pick.h"

/* capability: 90 for compute capability 9.0, which is the least. false: there is no cuDNN here for this card. */
bool cudnn_attention_open(struct attention_other *o, int capability, cudaStream_t stream);

#endif

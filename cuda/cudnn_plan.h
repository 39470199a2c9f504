/* cudnn_plan.h: attention of one shape in one direction by cuDNN: an execution plan, and calls of it.
 *
 * A plan is made for a card that is there, by a handle, or for one that is described, as cuDNN itself writes a card's
 * properties down, so that plans can be tried on a machine without one. Of what cuDNN's heuristics offer the first is taken
 * that fits the workspace; on sm_100 the deterministic backward must be asked for by engine and knobs, since the heuristics
 * do not know that it is wanted.
 *
 * A plan owns its descriptors. Used by cudnn_attention.c, and by a test. */
#ifndef MTRAIN_CUDA_CUDNN_PLAN_H
#define MTRAIN_CUDA_CUDNN_PLAN_H

#include "attention_pick.h"
#include "cudnn_part.h"

/* The card: there, or described by a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. */
struct cudnn_target {
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t properties;
	int capability; /* 90: compute capability 9.0 */
};

struct cudnn_plan {
	struct cudnn_parts parts;
	cudnnBackendDescriptor_t plan;
	int64_t groups;    /* of one sample in a call of cuDNN; 0: all of all samples */
	int64_t engine;    /* its number in the library */
	int64_t offer;     /* which of the heuristics', from 1: an engine has several, with other knobs; 0: asked for by engine */
	int64_t workspace; /* bytes */
};

/* What a direction reads and writes; forward has no gradients. */
struct cudnn_operands {
	void *qkv, *out, *lse, *dout, *delta, *dqkv;
};

/* false: cuDNN has no such plan; parts.why may say more. */
bool cudnn_plan_open(struct cudnn_plan *p, const struct cudnn_target *target, const struct attention_key *key, bool backward,
		     size_t workspace);
void cudnn_plan_close(struct cudnn_plan *p);

/* Queues the op on the handle's stream. */
cudnnStatus_t cudnn_plan_run(const struct cudnn_plan *p, cudnnHandle_t handle, const struct attention_key *key,
			     const struct cudnn_operands *o, void *workspace);

#endif

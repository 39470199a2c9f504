/* cudnn_part.h: descriptors of cuDNN's backend API, made one after the other and given back together.
 *
 * After a call that failed the others do nothing, so that a graph is written down without a check behind each line. Owns the
 * descriptors. Used by cudnn_graph.c and cudnn_plan.c. */
#ifndef MTRAIN_CUDA_CUDNN_PART_H
#define MTRAIN_CUDA_CUDNN_PART_H

#include <cudnn.h>

enum { CUDNN_PARTS = 128 };

struct cudnn_parts {
	cudnnBackendDescriptor_t list[CUDNN_PARTS];
	int count;
	cudnnStatus_t status; /* of the first call that failed */
	char why[200];        /* what the library said of it */
};

cudnnBackendDescriptor_t cudnn_part_make(struct cudnn_parts *p, cudnnBackendDescriptorType_t type);
void cudnn_part_set(struct cudnn_parts *p, cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t what,
		    cudnnBackendAttributeType_t type, int64_t count, const void *values);
void cudnn_part_refer(struct cudnn_parts *p, cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t what,
		      cudnnBackendDescriptor_t to);
void cudnn_part_get(struct cudnn_parts *p, cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t what,
		    cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values);
void cudnn_part_finish(struct cudnn_parts *p, cudnnBackendDescriptor_t part);

/* Those from the first-th on. */
void cudnn_parts_give_back(struct cudnn_parts *p, int first);

#endif

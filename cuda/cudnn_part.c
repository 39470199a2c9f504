#include "cudnn_part.h"

#include "base/error.h"

static void note(struct cudnn_parts *p, cudnnStatus_t status)
{
	p->status = status;
	if (status != CUDNN_STATUS_SUCCESS)
		cudnnGetLastErrorString(p->why, sizeof p->why);
}

cudnnBackendDescriptor_t cudnn_part_make(struct cudnn_parts *p, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t made = NULL;
	check(p->count < CUDNN_PARTS);
	if (p->status != CUDNN_STATUS_SUCCESS)
		return NULL;
	note(p, cudnnBackendCreateDescriptor(type, &made));
	if (p->status == CUDNN_STATUS_SUCCESS)
		p->list[p->count++] = made;
	return made;
}

void cudnn_part_set(struct cudnn_parts *p, cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t what,
		    cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	if (p->status == CUDNN_STATUS_SUCCESS)
		note(p, cudnnBackendSetAttribute(part, what, type, count, values));
}

void cudnn_part_refer(struct cudnn_parts *p, cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t what,
		      cudnnBackendDescriptor_t to)
{
	cudnn_part_set(p, part, what, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

void cudnn_part_get(struct cudnn_parts *p, cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t what,
		    cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values)
{
	if (p->status == CUDNN_STATUS_SUCCESS)
		note(p, cudnnBackendGetAttribute(part, what, type, most, count, values));
}

void cudnn_part_finish(struct cudnn_parts *p, cudnnBackendDescriptor_t part)
{
	if (p->status == CUDNN_STATUS_SUCCESS)
		note(p, cudnnBackendFinalize(part));
}

void cudnn_parts_give_back(struct cudnn_parts *p, int first)
{
	while (p->count > first)
		cudnnBackendDestroyDescriptor(p->list[--p->count]);
}

#include "cudnn_attention.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "cudnn_plan.h"

/* Older versions have faults that callers must go round: 9.10 in all of attention, those before ANY_LENGTH where the tokens are
 * no whole blocks. */
enum { LEAST_CAPABILITY = 90, LEAST_VERSION = 91100, ANY_LENGTH = 91600, BLOCK = 128 };

struct library {
	cudnnHandle_t handle;
	int capability;
	char name[TUNING_VALUE / 2];
};

struct plan {
	struct library *library;
	struct attention_key key;
	struct cudnn_plan forward, backward;
};

static void *plan_open(void *self, const struct attention_key *key, size_t workspace, char text[TUNING_VALUE])
{
	struct library *l = self;
	struct cudnn_target target = {.handle = l->handle, .capability = l->capability};
	if (key->size % 8 != 0 || key->tokens < 2 || (key->tokens % BLOCK != 0 && cudnnGetVersion() < ANY_LENGTH)) {
		snprintf(text, TUNING_VALUE, "not for this head size or number of tokens");
		return NULL;
	}
	struct plan *p = calloc(1, sizeof *p);
	check(p);
	p->library = l;
	p->key = *key;
	if (!cudnn_plan_open(&p->forward, &target, key, false, workspace)) {
		snprintf(text, TUNING_VALUE, "forward in %zu bytes: %.80s", workspace, p->forward.parts.why);
		free(p);
		return NULL;
	}
	if (!cudnn_plan_open(&p->backward, &target, key, true, workspace)) {
		snprintf(text, TUNING_VALUE, "backward in %zu bytes: %.80s", workspace, p->backward.parts.why);
		cudnn_plan_close(&p->forward);
		free(p);
		return NULL;
	}
	/* Engine, offer and groups of a call: two plans of one text give the same bits. */
	const struct cudnn_plan *f = &p->forward, *b = &p->backward;
	int n = snprintf(text, TUNING_VALUE, "%s forward %lld.%lld/%lld backward %lld.%lld/%lld", l->name, (long long)f->engine,
			 (long long)f->offer, (long long)f->groups, (long long)b->engine, (long long)b->offer, (long long)b->groups);
	check(n < TUNING_VALUE);
	return p;
}

static void plan_close(void *plan)
{
	struct plan *p = plan;
	cudnn_plan_close(&p->forward);
	cudnn_plan_close(&p->backward);
	free(p);
}

static bool run(struct plan *p, const struct cudnn_plan *direction, const struct cudnn_operands *o, void *workspace)
{
	cudnnStatus_t status = cudnn_plan_run(direction, p->library->handle, &p->key, o, workspace);
	if (status != CUDNN_STATUS_SUCCESS)
		log_warn("cuDNN: attention: %s", cudnnGetErrorString(status));
	return status == CUDNN_STATUS_SUCCESS;
}

static bool forward(void *plan, const struct kernel_place *k, const struct op_attention_forward *a)
{
	struct plan *p = plan;
	struct cudnn_operands o = {.qkv = a->qkv.data, .out = a->out.data, .lse = a->lse.data};
	return run(p, &p->forward, &o, k->workspace);
}

static bool backward(void *plan, const struct kernel_place *k, const struct op_attention_backward *a)
{
	struct plan *p = plan;
	struct cudnn_operands o = {.qkv = a->qkv.data, .out = a->out.data, .lse = a->lse.data, .dout = a->dout.data,
				   .delta = a->delta.data, .dqkv = a->dqkv.data};
	return run(p, &p->backward, &o, k->workspace);
}

static void close_library(void *self)
{
	struct library *l = self;
	cudnnDestroy(l->handle);
	free(l);
}

bool cudnn_attention_open(struct attention_other *o, int capability, cudaStream_t stream)
{
	size_t version = cudnnGetVersion();
	if (capability < LEAST_CAPABILITY || version < LEAST_VERSION)
		return false;
	struct library *l = calloc(1, sizeof *l);
	check(l);
	cudnnStatus_t status = cudnnCreate(&l->handle);
	if (status == CUDNN_STATUS_SUCCESS && (status = cudnnSetStream(l->handle, stream)) != CUDNN_STATUS_SUCCESS)
		cudnnDestroy(l->handle);
	if (status != CUDNN_STATUS_SUCCESS) {
		log_warn("cuDNN %zu cannot be used, so attention is ours alone: %s", version, cudnnGetErrorString(status));
		free(l);
		return false;
	}
	l->capability = capability;
	snprintf(l->name, sizeof l->name, "cudnn %zu sm_%d", version, capability);
	*o = (struct attention_other){.workspace = workspace_cudnn, .self = l, .close = close_library, .plan_open = plan_open,
				      .plan_close = plan_close, .forward = forward, .backward = backward};
	snprintf(o->name, sizeof o->name, "%s", l->name);
	return true;
}

/* Another library's attention for the emulated program: our kernels under another name, where CUDAEMU_ATTENTION is set, as a number: the
 * rank that has no plan; -1: none. It says how often it computed. */
#include "cudnn_attention.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

static int calls;

static size_t workspace(const struct dev_limits *limits)
{
	return workspace_cudnn(limits);
}

static void *plan_open(void *self, const struct attention_key *key, size_t bytes, char text[TUNING_VALUE])
{
	if (log_rank() == atoi(getenv("CUDAEMU_ATTENTION"))) {
		snprintf(text, TUNING_VALUE, "it was told so");
		return NULL;
	}
	snprintf(text, TUNING_VALUE, "another 1 plan %lld", (long long)key->tokens);
	return &calls;
}

static void plan_close(void *plan)
{
}

static bool forward(void *plan, const struct kernel_place *k, const struct op_attention_forward *a)
{
	calls++;
	kernel_attention_forward(k, a);
	return true;
}

static bool backward(void *plan, const struct kernel_place *k, const struct op_attention_backward *a)
{
	calls++;
	kernel_attention_backward(k, a);
	return true;
}

static void close_library(void *self)
{
	log_info("another attention was called %d times", calls);
}

bool cudnn_attention_open(struct attention_other *o, int capability, cudaStream_t stream)
{
	if (!getenv("CUDAEMU_ATTENTION"))
		return false;
	*o = (struct attention_other){.name = "another 1", .workspace = workspace, .close = close_library, .plan_open = plan_open,
				      .plan_close = plan_close, .forward = forward, .backward = backward};
	return true;
}

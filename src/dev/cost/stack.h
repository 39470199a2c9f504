/* stack.h: how another trainer differs from mtrain, for holding the planner against its published runs.
 *
 * The planner counts mtrain's own step. A stack file (INI, data/stack/) says with switches what the other trainer does in
 * another way, and with at most four fitted constants how fast its kernels are; [fit] says which published rows they were
 * fitted on. The default, mtrain, has no switch and no fitted constant.
 *
 * Plain data. Used by the planner. */
#ifndef MTRAIN_DEV_COST_STACK_H
#define MTRAIN_DEV_COST_STACK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { STACK_FITTED = 4 }; /* constants that a file may fit */

struct stack {
	char name[64];
	bool unfused_attention;    /* products, mask, softmax and dropout over whole rows of scores, which are kept for backward */
	bool selective_attention;  /* selective recompute repeats attention alone, and keeps all else but the scores */
	bool even_stages;          /* as many layers on each stage, the head beside the last ones */
	bool fp16_gradients;       /* kept and reduced in fp16; with compute bf16, kept beside FP32 ones */
	bool synchronous_exchange; /* computing waits for every exchange */
	bool no_overlap;           /* computing waits for every collective, which moves a micro-batch whole */
	bool whole_recompute;      /* full recompute repeats a layer's whole forward, its last product and sum too */
	bool unfused_optimizer;    /* gradients are copied, unscaled, squared and clipped in passes of their own */
	bool library_workspace;    /* what ops use inside is the hardware's library_gib, not mtrain's own */
	bool scatter_gather;       /* stages send each other 1/tensor of an activation and gather it in the node */
	/* fitted, times 1 and op_us 0 where a file says nothing */
	double product_time;       /* of matrix products, times the hardware's */
	double memory_time;        /* of ops bound by memory */
	double communication_time; /* of collectives and exchanges */
	double op_us;              /* of each op, beside its work: launches that keep a card waiting */
	double overhead_gib;       /* of memory beside what is counted, in place of the hardware's; below 0 where a file says nothing */
	char fit[400];             /* which rows; empty: nothing is fitted */
};

/* Calls f for each switch that is on (value 1) and each constant that is fitted. */
void stack_each(const struct stack *s, void (*f)(void *context, const char *key, double value), void *context);

/* A built-in name, or a file. Fails: CODE_USAGE, as hardware_load; more than four fitted constants. */
bool stack_load(struct stack *s, const char *name, struct error *e);

/* The same from text[bytes]; `path` is for messages. */
bool stack_parse(struct stack *s, const char *path, const char *text, size_t bytes, struct error *e);

#endif

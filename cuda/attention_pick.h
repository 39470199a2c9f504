/* attention_pick.h: which attention computes a shape: our kernels, or another library's where it has agreed with them.
 *
 * Ours computes everything until attention_pick_choose. Then, for each shape that was asked for forward and backward in 16
 * bits, of whole sequences, without dropout and biases, and whose tensors begin at multiples of 16 bytes, the other's is taken
 * if it has a plan within the workspace, agrees with ours (attention_agree.h) and, where that is timed, is the faster one for
 * both directions together. Where it disagrees that is a choice of its own, which holds on every rank that is told of it; and
 * so is that a rank cannot have the plan that was agreed on after all had chosen.
 * Both give lse as the natural logarithm, so backward may follow the other's forward. After attention_pick_settle shapes that
 * are new are ours: nothing is made behind step 1.
 *
 * Owns the plans. Used by the backend. */
#ifndef MTRAIN_CUDA_ATTENTION_PICK_H
#define MTRAIN_CUDA_ATTENTION_PICK_H

#include "dev/tuning.h"
#include "kernels.h"

/* A shape. Compared as bytes: made from zeroed memory. */
struct attention_key {
	int64_t batch, tokens, groups, heads, size; /* B, T, KV, G, D */
	double scale;
	int64_t type;
};

/* Another library's attention: a table of functions. Formulas are those of dev/ops.h. */
struct attention_other {
	char name[TUNING_VALUE / 2]; /* with its version and the card's capability: plans of the same name are the same */
	size_t (*workspace)(const struct dev_limits *limits); /* bytes that it can make use of */
	void *self;
	void (*close)(void *self);

	/* A plan for both directions; text: what it is, as ranks and checkpoints tell it. NULL: there is none; text: why. */
	void *(*plan_open)(void *self, const struct attention_key *key, size_t workspace, char text[TUNING_VALUE]);
	void (*plan_close)(void *plan);
	/* false: the library could not queue it, and has said why. */
	bool (*forward)(void *plan, const struct kernel_place *k, const struct op_attention_forward *a);
	bool (*backward)(void *plan, const struct kernel_place *k, const struct op_attention_backward *a);
};

struct attention_pick;

/* other: copied, and closed with it; NULL: there is none. */
struct attention_pick *attention_pick_open(const struct attention_other *other);
void attention_pick_close(struct attention_pick *p);         /* NULL is fine */
size_t attention_pick_workspace(const struct attention_pick *p, const struct dev_limits *limits);
void attention_pick_reserved(struct attention_pick *p, size_t workspace); /* bytes at the place's workspace */

void attention_pick_forward(struct attention_pick *p, const struct kernel_place *k, const struct op_attention_forward *a);
void attention_pick_backward(struct attention_pick *p, const struct kernel_place *k, const struct op_attention_backward *a);

/* Adds what computes each shape; shapes that it was not told of are tried first, on the memory of their latest calls, which is
 * spoilt. Blocks. */
void attention_pick_choose(struct attention_pick *p, const struct kernel_place *k, struct tuning *own, bool timed);
/* What to take; the lowest rank says what is refused, once. */
void attention_pick_told(struct attention_pick *p, const struct tuning *t);
void attention_pick_settle(struct attention_pick *p, bool settled);

#endif

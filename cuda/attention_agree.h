/* attention_agree.h: whether another library's attention agrees with ours, and which of the two is faster.
 *
 * Both compute forward and backward of the same random queries, keys, values and output gradients, on the memory of a call. Of
 * up to 4 KV groups, the first and the last among them, what they write is held against our kernels in FP32: with R those, P
 * ours and X the other's, max|X − R| ≤ 2·max|P − R| + 1e-6·max|R| for out, lse and dqkv, the rule of the op checks. The other's
 * is computed twice and must give the same bits.
 *
 * Used by attention_pick.c. */
#ifndef MTRAIN_CUDA_ATTENTION_AGREE_H
#define MTRAIN_CUDA_ATTENTION_AGREE_H

#include "attention_pick.h"

enum { ATTENTION_WHY = 96 };

/* Bytes of workspace that the comparison takes. */
size_t attention_agree_room(const struct attention_key *key);

/* false: why not. Spoils the tensors of the call and the place's workspace. Blocks. */
bool attention_agree(const struct attention_other *o, void *plan, const struct kernel_place *k, const struct op_attention_backward *a,
		     char why[ATTENTION_WHY]);

/* Milliseconds of forward and backward together, infinite if they cannot be run; o NULL: by our kernels. Spoils what they
 * write. Blocks. */
float attention_agree_time(const struct attention_other *o, void *plan, const struct kernel_place *k,
			   const struct op_attention_backward *a);

#endif

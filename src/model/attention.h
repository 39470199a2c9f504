/* attention.h: causal attention of a block's heads over the ranks that share each sequence.
 *
 * On one context rank it is one op. Over c ranks a sequence is cut into 2c chunks, and rank r has chunks r and 2c − 1 − r, so
 * that the causal half is shared evenly (env_share). Keys and values go round a ring: at step i a rank computes its queries
 * against those of rank r − i while they are on their way to rank r + 1, and merges the parts in FP32. Backward sends with
 * them, one step behind, FP32 sums of their gradients, to which each rank adds its part; after c steps they are home. Only
 * KV heads travel. Buffers do not grow with c.
 *
 * Used by block.c. */
#ifndef MTRAIN_MODEL_ATTENTION_H
#define MTRAIN_MODEL_ATTENTION_H

#include "dev/op_cost.h"
#include "model/env.h"

/* Dead after a call; one for all blocks of a rank. Nothing on one context rank. */
struct attention_scratch {
	struct tensor kv[2];    /* [N, KV/tp, 2, D]: here, and on its way */
	struct tensor sum;      /* S [N, H/tp, D]: forward the output so far, backward dq */
	struct tensor dkv[2];   /* S [N, KV/tp, 2, D]: computed here, and on its way */
	struct tensor dkv_come; /* S [N, KV/tp, 2, D]: the sum of the ranks before */
};

struct attention {
	const struct env *env;
	int64_t heads, kv_heads; /* local */
	const struct attention_scratch *scratch;
	struct dropout dropout;  /* of env_dropout(…, DROPOUT_ATTENTION) */
};

void attention_build_scratch(struct attention_scratch *s, const struct env *env, struct memory *memory, int64_t heads,
			     int64_t kv_heads);

/* a [N, H/tp, D] and lse S [B, H/tp, T/c] of qkv [N, KV/tp, G+2, D]. */
void attention_forward(const struct attention *at, struct tensor a, struct tensor lse, struct tensor qkv);

/* What forward's attention takes of this rank; needs of the tensors their shapes alone. */
struct op_cost attention_cost(const struct attention *at, struct tensor a, struct tensor lse, struct tensor qkv);

/* dqkv from da; delta S [B, H/tp, T/c] is room. */
void attention_backward(const struct attention *at, struct tensor dqkv, struct tensor delta, struct tensor da, struct tensor a,
			struct tensor lse, struct tensor qkv);

#endif

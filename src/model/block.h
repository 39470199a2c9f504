/* block.h: one pre-norm transformer block, forward and backward.
 *
 *   n1 = norm1(x)        a = attention(qkv(n1))      x1 = x + dropout(out(a) + b)
 *   n2 = norm2(x1)       g = gelu(up(n2))            y = x1 + dropout(down(g) + b)
 *
 * qkv and up are column-parallel, out and down row-parallel: two sums over tensor ranks forward, two backward; with
 * sequence parallelism two gathers and two reduce-scatters forward, four and two backward.
 *
 * A backward whose parts are called apart keeps for its weight part what the linears read, which is saved already, and
 * the gradients of what they wrote. Each of these is as large as a saved tensor that is dead by then and takes its
 * place: the two are swapped, so that a micro-batch that waits for its weight part keeps no more than one that waits for
 * its backward. */
#ifndef MTRAIN_MODEL_BLOCK_H
#define MTRAIN_MODEL_BLOCK_H

#include "model/linear.h"
#include "model/norm.h"

struct block {
	const struct env *env;
	int64_t layer; /* global number */
	int64_t heads, kv_heads; /* local */
	struct norm norm1, norm2;
	struct linear qkv, out, up, down;
};

/* What a block keeps of one micro-batch from forward to backward: 32·N·C bytes in 16 bits with F = 4C and one KV
 * head a head, and the statistics. */
struct block_saved {
	struct tensor x;   /* [rows, C], the input: written by whoever runs before, and not taken by block_build_saved */
	struct tensor n1;  /* [rows, C] */
	struct tensor qkv; /* [N, KV/tp, G+2, D] */
	struct tensor a;   /* [N, H/tp, D] */
	struct tensor lse; /* S [B, H/tp, T] */
	struct tensor x1;  /* [rows, C] */
	struct tensor n2;  /* [rows, C] */
	struct tensor pre; /* [N, F/tp], before the GELU */
	struct tensor g;   /* [N, F/tp] */
	struct norm_saved norm1, norm2;
};

/* Dead after the call; one for all blocks of a rank. */
struct block_scratch {
	struct tensor rows;   /* [rows, C]: output of a row-parallel linear; gradient of a norm's output */
	struct tensor branch; /* [rows, C]: gradient of a branch behind its dropout; with dropout or split backwards */
	struct tensor dx1;    /* [rows, C] */
	struct tensor da;     /* [N, H/tp, D] */
	struct tensor dqkv;   /* [N, KV/tp, G+2, D] */
	struct tensor dpre;   /* [N, F/tp] */
	struct tensor delta;  /* S [B, H/tp, T] */
};

void block_build(struct block *b, const struct env *env, struct memory *memory, int64_t layer);
void block_build_saved(struct block_saved *s, const struct block *b, struct memory *memory);
/* split: parts of a backward will be called apart. */
void block_build_scratch(struct block_scratch *s, const struct block *b, struct memory *memory, bool split);

/* y [rows, C] from s->x; fills the rest of s. */
void block_forward(const struct block *b, const struct block_saved *s, const struct block_scratch *w, struct tensor y,
		   const struct pass *pass);

/* d [rows, C] is dy on entry and dx on return; parameter gradients are added. The input part alone leaves in s, for the
 * weight part, the gradients of qkv in qkv, of pre in pre, and of the outputs of down and out in x1 and x: by swapping
 * tensors between s and w, x with the others. */
void block_backward(const struct block *b, enum backward_parts parts, struct block_saved *s, struct block_scratch *w,
		    struct tensor d, const struct pass *pass);

#endif

/* block.h: one pre-norm transformer block, forward and backward.
 *
 *   n1 = norm1(x)        a = attention(qkv(n1))      x1 = x + dropout(out(a) + b)
 *   n2 = norm2(x1)       g = gelu(up(n2))            y = x1 + dropout(down(g) + b)
 *
 * With SwiGLU up gives gates and values side by side, [gate; up](n2), and g = silu(gate)·up. Tensor ranks share each of the
 * two, so that a gate is where its value is.
 *
 * With linear biases attention itself takes off its scores what distance costs (alibi.h).
 * With rotary positions the queries and keys in qkv are turned in place before attention (rope.h), and their gradients turned
 * back behind it.
 *
 * qkv and up are column-parallel, out and down row-parallel: two sums over tensor ranks forward, two backward; with
 * sequence parallelism two gathers and two reduce-scatters forward, four and two backward.
 *
 * What is not kept is computed again at the beginning of backward (block_saved.h): qkv and up then gather their inputs
 * once more with sequence parallelism, and out sums its outputs once more. down and y are never computed again: nothing
 * in backward reads them.
 *
 * A backward whose parts are called apart keeps for its weight part what the linears read, kept or computed again, and
 * the gradients of what they wrote. Each of these is as large as a saved tensor that is dead by then and takes its
 * place: the two are swapped, so that a micro-batch that waits for its weight part keeps no more than one that waits for
 * a backward with everything kept. */
#ifndef MTRAIN_MODEL_BLOCK_H
#define MTRAIN_MODEL_BLOCK_H

#include "model/attention.h"
#include "model/block_saved.h"
#include "model/linear.h"
#include "model/norm.h"

struct block {
	const struct env *env;
	int64_t layer; /* global number */
	int64_t heads, kv_heads; /* local */
	struct norm norm1, norm2;
	struct linear qkv, out, up, down; /* up: gates and values with SwiGLU */
	bool swiglu;
};

/* Dead after the call; one for all blocks of a rank. */
struct block_scratch {
	struct tensor rows;   /* [rows, C]: output of a row-parallel linear; gradient of a norm's output */
	struct tensor branch; /* [rows, C]: gradient of a branch behind its dropout; with dropout or split backwards */
	struct tensor dx1;    /* [rows, C] */
	struct tensor da;     /* [N, H/tp, D] */
	struct tensor dqkv;   /* [N, KV/tp, G+2, D] */
	struct tensor dg;     /* [N, F/tp]; SwiGLU */
	struct tensor dpre;   /* [N, F/tp], SwiGLU [N, 2·F/tp] */
	struct tensor delta;  /* S [B, H/tp, T/cp] */
	struct attention_scratch attention;
	struct block_saved again; /* what some block does not keep: alive from one block's compute to the next one's */
};

void block_build(struct block *b, const struct env *env, struct memory *memory, int64_t layer);

/* kept: the tensors that all blocks keep, for the others there are buffers. split: parts of a backward will be called
 * apart. */
void block_build_scratch(struct block_scratch *s, const struct block *b, unsigned kept, bool split,
			 struct memory *memory);

/* Tensors of the block's shapes: [N, KV/tp, G+2, D], [N, H/tp, D], S [B, H/tp, T/cp]. */
struct tensor block_qkv(const struct block *b, struct memory *memory, enum memory_kind kind);
struct tensor block_heads(const struct block *b, struct memory *memory, enum memory_kind kind);
struct tensor block_lse(const struct block *b, struct memory *memory, enum memory_kind kind);

/* y [rows, C] from s->x; fills the rest of s. */
void block_forward(const struct block *b, const struct block_saved *s, const struct block_scratch *w, struct tensor y,
		   const struct pass *pass);

/* d [rows, C] is dy on entry and dx on return; parameter gradients are added. The input part computes first what s does
 * not keep. Alone it leaves in s, for the weight part, the gradients of qkv in qkv, of pre in pre, and of the outputs of
 * down and out in x1 and x, by swapping tensors between s and w, x with the others; what s does not keep must then be
 * its own until the weight part (block_saved_lend). */
void block_backward(const struct block *b, enum backward_parts parts, struct block_saved *s, struct block_scratch *w,
		    struct tensor d, const struct pass *pass);

#endif

/* block_saved.h: what a block computes in forward and needs again in backward, as a table, and where it is.
 *
 * A tensor is kept from forward to backward in activation memory, or it is not: then it lies in a buffer that all
 * blocks of a rank share, is gone when the next block runs, and is computed again before its backward, from what is
 * kept, by the ops that computed it first or by others that the book of ops binds to their bits. Dropout masks are
 * counted, not drawn (rng.h). Any set of tensors can be kept; recompute.h chooses one.
 *
 * The table says for each tensor what keeping it takes and what having it again costs. Used by block.c, recompute.c and
 * whoever accounts for memory. */
#ifndef MTRAIN_MODEL_BLOCK_SAVED_H
#define MTRAIN_MODEL_BLOCK_SAVED_H

#include "model/norm.h"

struct block;

/* In the order of computing. A set of them is an unsigned of bits 1 << tensor. */
enum block_tensor {
	BLOCK_X, BLOCK_N1, BLOCK_QKV, BLOCK_A, BLOCK_X1, BLOCK_N2, BLOCK_PRE, BLOCK_G, BLOCK_TENSORS
};
enum { BLOCK_ALL = (1 << BLOCK_TENSORS) - 1 };

/* Of one micro-batch. */
struct block_saved {
	struct tensor x;   /* [rows, C], the input: always kept, by whoever runs before */
	struct tensor n1;  /* [rows, C] */
	struct tensor qkv; /* [N, KV/tp, G+2, D] */
	struct tensor a;   /* [N, H/tp, D] */
	struct tensor lse; /* S [B, H/tp, T/cp]; goes with a */
	struct tensor x1;  /* [rows, C] */
	struct tensor n2;  /* [rows, C] */
	struct tensor pre; /* [N, F/tp], before the GELU; SwiGLU [N, 2·F/tp] */
	struct tensor g;   /* [N, F/tp] */
	struct norm_saved norm1, norm2; /* go with n1 and n2 */
	unsigned kept;     /* which are kept; the others are in shared buffers */
};

/* A row of the table. */
struct block_row {
	const char *name;  /* "qkv" */
	const char *again; /* what computes it: "norm", "product", "attention", "activation"; NULL: it is not computed here */
	size_t bytes;      /* of a micro-batch, with the statistics that go with it */
	double flops;      /* to have it again, as op_cost.h counts them */
	double traffic;    /* bytes of memory that this moves, as counted there */
	double moved;      /* bytes of the tensors that it sums or gathers over tensor ranks, or sends to context ranks */
};

/* The bytes are what the arenas hand out. */
void block_rows(struct block_row rows[BLOCK_TENSORS], const struct block *b);

/* Takes the kept tensors but x from activation memory and those of `again` for the others; x is left to the caller.
 * Fits any block of the stage. */
void block_build_saved(struct block_saved *s, const struct block *b, unsigned kept, const struct block_saved *again,
		       struct memory *memory);

/* Takes a buffer for each tensor that is not in `kept`: from scratch memory once for all blocks, which keep at least
 * those. */
void block_build_again(struct block_saved *again, const struct block *b, unsigned kept, struct memory *memory,
		       enum memory_kind kind);

/* Gives s the buffers of `own` in place of shared ones, for a backward whose parts are called apart, and takes them back:
 * then s has those of `again`. In between tensors of s may have changed places with others of their size. */
void block_saved_lend(struct block_saved *s, const struct block_saved *own);
void block_saved_return(struct block_saved *s, struct block_saved *own, const struct block_saved *again);

#endif

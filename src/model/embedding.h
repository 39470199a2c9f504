/* embedding.h: token ids to vectors, learned positions added; the token table's rows are split over tensor ranks.
 *
 * Each tensor rank looks up the ids whose rows it holds and gives zeros for the others; one sum over tensor ranks makes
 * the lookup whole. Positions are whole on every rank and added after the sum. */
#ifndef MTRAIN_MODEL_EMBEDDING_H
#define MTRAIN_MODEL_EMBEDDING_H

#include "model/env.h"

struct embedding {
	const struct env *env;
	struct param *token;    /* [V, C], padded rows of this rank */
	struct param *position; /* [T, C]; NULL: positions are told elsewhere */
	int64_t first;          /* vocabulary id of row 0 here */
};

void embedding_build(struct embedding *b, const struct env *env, struct memory *memory);

/* x [rows, C] of tokens I32 [N]. */
void embedding_forward(const struct embedding *b, struct tensor x, struct tensor tokens, const struct pass *pass);

/* Adds to the tables' gradients; d [rows, C] is the gradient of x and is spoilt. order: I32 [N], rows sorted by token. */
void embedding_backward(const struct embedding *b, struct tensor d, struct tensor tokens, struct tensor order,
			const struct pass *pass);

#endif

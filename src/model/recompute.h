/* recompute.h: which of a block's tensors are kept from forward to backward, and which are computed again.
 *
 *   none       keeps all.
 *   selective  keeps what is dear: x, qkv, a, x1, pre. Norms and the activation are computed again, without a product.
 *   full       keeps x alone. Forward runs again but for its last product, which backward does not need.
 *   auto       the cheapest that fits the memory given, position by position (recompute_fit).
 *
 * Used by gpt's caller: gpt_options.kept. */
#ifndef MTRAIN_MODEL_RECOMPUTE_H
#define MTRAIN_MODEL_RECOMPUTE_H

#include "model/block_saved.h"
#include "par/mesh.h"

/* What a block keeps (a set of enum block_tensor) with none, selective and full; with auto where nothing presses: all. */
unsigned recompute_kept(enum recompute_choice choice);

/* What it costs to have a tensor again, in FLOPs of a matrix product that take as long. A byte of memory counts
 * 150, a byte over tensor ranks 1000: about what both are on an A100 and on an H100. */
double recompute_cost(const struct block_row *row);

struct recompute_fit {
	const struct block_row *rows; /* [BLOCK_TENSORS] */
	int64_t layers;               /* positions in a slot */
	int64_t slots;                /* but those that may wait for a weight part, where nothing is saved */
	int64_t excess;               /* bytes by which a rank that keeps all is too large */
};

/* For each position of a slot what is kept: the choice with the least Σ recompute_cost over positions among those that
 * save the excess, where a tensor that is dropped at n positions saves n·slots times its bytes, less a shared buffer.
 * Tensors are dropped from the last positions on. Gives false, and full, where no choice saves so much. */
bool recompute_fit(const struct recompute_fit *f, unsigned *kept);

/* What is computed again, for people: "n1, n2, g", or "n1 in 3 of 12 layers, g"; "nothing". Returns buf. */
enum { RECOMPUTE_ROOM = 256 };
char *recompute_text(char buf[RECOMPUTE_ROOM], const unsigned *kept, int64_t layers, const struct block_row *rows);

#endif

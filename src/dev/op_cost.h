/* op_cost.h: what a call of an op takes, from its arguments alone: the book of ops in numbers.
 *
 * flops counts multiplications and additions of matrix products and attention, two for each pair, as published FLOP counts do;
 * attention counts the causal half. All other ops are bound by memory, and theirs are not counted. `again` is the part that
 * computes for a second time what an earlier op has computed and thrown away: a model's FLOPs are flops − again.
 *
 * bytes is the memory that a call must move at least: each tensor read once and written once, one that is added to both. A
 * table that is looked up in counts the rows looked up. Scalars do not count.
 *
 * So flops/peak and bytes/bandwidth are floors that no kernel can go below. Pure functions of the struct; no tensor is
 * touched. Used by the cost backend, and by whoever holds a kernel against its floor. */
#ifndef MTRAIN_DEV_OP_COST_H
#define MTRAIN_DEV_OP_COST_H

#include "dev/ops.h"

struct op_cost {
	double flops;
	double again; /* of flops */
	double bytes;
};

#define OP_ID(name) OP_##name,
enum op_id { OPS(OP_ID) OP_COUNT };
#undef OP_ID

const char *op_name(enum op_id op);

#define OP_COST(name) struct op_cost op_cost_##name(const struct op_##name *a);
OPS(OP_COST)
#undef OP_COST

#endif

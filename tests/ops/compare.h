/* compare.h: the one rule by which what a backend computes is right.
 *
 * With R the plain op on FP64 storage of the same values, P the plain op in the type, X what is checked in the type:
 * max|X − R| ≤ 2·max|P − R| + 1e-6·max|R| for each tensor that the op writes, and where R is not finite X is the same;
 * scalars equal P's to FP64's last bits. Used by the tests of every backend. */
#ifndef MTRAIN_TESTS_OPS_COMPARE_H
#define MTRAIN_TESTS_OPS_COMPARE_H

#include "call.h"

/* Fails the test, naming tensor, element and both values, when X's results do not hold against those of P and R. */
void compare_calls(struct call *x, struct call *p, struct call *r);

#endif

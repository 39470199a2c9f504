/* again.h: what is thrown away after forward is had again before backward by another op, in the same bits: a sum's norm by
 * norm_forward, a product's GELU by gelu_forward. Each backend's tests run it. */
#ifndef MTRAIN_TESTS_OPS_AGAIN_H
#define MTRAIN_TESTS_OPS_AGAIN_H

#include "dev/backend.h"

/* Checks a column of a backend (call.h: bench_open) in the types from `widest` (F64 or F32) on. Gives the number of
 * failures. */
int again_run(const struct backend *backend, const char *column, enum dtype widest);

#endif

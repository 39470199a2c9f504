/* sum.h: adding what ranks sent, in rank order.
 *
 * The one place that says what a sum over ranks is: out[i] = round((in[0][i] + in[1][i]) + in[2][i] …), added in
 * FP32 (FP64 for F64), rounded once. So the bits depend on the inputs alone, not on who adds or how it was cut.
 *
 * Used by transports that move data between hosts. */
#ifndef MTRAIN_COMM_SUM_H
#define MTRAIN_COMM_SUM_H

#include "base/tensor.h"

/* out [count] = Σ over r < ranks of in[r] [count]. out may be one of the inputs. Needs: a float type. */
void sum_ranks(void *out, enum dtype dtype, const void *const *in, int ranks, int64_t count);

#endif

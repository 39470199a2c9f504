/* alibi.h: attention with linear biases (Press et al. 2022): a score falls by slope·(t − u), in place of positions that are
 * added or turned.
 *
 * The slopes of n heads, n a power of two, are a geometric series: that of head h is 2^(−8·(h + 1)/n). For another n, as the
 * paper's authors do it: those of the next lower power of two p, then as many as are wanted of those of 2p, every second one
 * from the first on. They belong to heads by their global number, so tensor ranks have the same as one rank. They are formed in
 * FP64 on the host, once.
 * Used by env.c. */
#ifndef MTRAIN_MODEL_ALIBI_H
#define MTRAIN_MODEL_ALIBI_H

#include "base/arena.h"
#include "dev/device.h"

/* Of head `head` of `heads`. Needs: 0 ≤ head < heads. */
double alibi_slope(int64_t heads, int64_t head);

/* Of `count` heads from `first` on, dtype [count], from the arena and filled; no values while measuring (dev NULL). Blocks. */
struct tensor alibi_slopes(int64_t heads, int64_t first, int64_t count, enum dtype dtype, struct arena *arena, struct device *dev);

#endif

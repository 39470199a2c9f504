/* order.h: in which order an epoch visits the windows of a source.
 *
 * A shuffle that is computed, not stored: no index files, no memory, any position found at once, on every rank
 * alike. An epoch's bijection of 0 … windows−1 is a balanced Feistel network of 8 rounds on b bits, b the least even
 * number with 2^b ≥ windows. An index is the halves (left, right), left the upper b/2 bits; round r = 0 … 7 makes
 * them
 *
 *   (right, left xor f),  f = the low b/2 bits of word 0 of Philox(seed; {right, r, epoch, source})
 *
 * and the network is applied again while its result is ≥ windows (cycle walking: less than 4 times on average).
 *
 * Pure functions. Used by data. */
#ifndef MTRAIN_TRAIN_ORDER_H
#define MTRAIN_TRAIN_ORDER_H

#include <stdint.h>

/* The window that comes at place `index` of an epoch. Epochs count from 0 and repeat after 2³²; source: its number in
 * the blend. Needs: 0 ≤ index < windows ≤ 2⁶². */
int64_t order_window(uint64_t seed, int source, int64_t epoch, int64_t windows, int64_t index);

#endif

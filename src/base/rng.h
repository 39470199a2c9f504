/* rng.h: random numbers that know where they are.
 *
 * A counter generator has no state: the number for (seed, position) is a function. So initial weights, dropout
 * masks and the data order are the same on every mesh, every thread count and after every restart. Philox4x32-10:
 * Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef MTRAIN_BASE_RNG_H
#define MTRAIN_BASE_RNG_H

#include <stdint.h>

#include "base/anywhere.h"

struct philox {
	uint32_t word[4];
};

/* The four words for counter c under the 64-bit key `seed` (key words: low, high). */
ANYWHERE static inline struct philox philox(uint64_t seed, struct philox c)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53u * c.word[0];
		uint64_t b = (uint64_t)0xCD9E8D57u * c.word[2];
		c = (struct philox){{(uint32_t)(b >> 32) ^ c.word[1] ^ k0, (uint32_t)b,
				     (uint32_t)(a >> 32) ^ c.word[3] ^ k1, (uint32_t)a}};
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return c;
}

/* Four draws of N(0, 1) for elements 4i … 4i+3 of the stream named `stream` (a tensor's XXH32): counter
 * {i low, i high, stream, ~0}, Box–Muller in FP64 on word pairs (0, 1) and (2, 3): with u = (w + 1)/2³²,
 * r = √(−2 ln u0), normals r·cos(2π u1), r·sin(2π u1). */
void rng_normal(uint64_t seed, uint32_t stream, uint64_t i, double out[4]);

/* Dropout: counter {e low, e high, n low, site << 16 | n high}, e the group of four elements within sample n. An
 * element is kept iff its word ≥ p·2³². */
ANYWHERE static inline struct philox rng_dropout(uint64_t seed, uint64_t e, uint64_t n, uint32_t site)
{
	return philox(seed, (struct philox){{(uint32_t)e, (uint32_t)(e >> 32), (uint32_t)n,
					     site << 16 | (uint32_t)((n >> 32) & 0xffffu)}});
}

/* The least word that is kept: p·2³² rounded up. Needs: 0 ≤ p ≤ 1 − 2⁻³². */
ANYWHERE static inline uint32_t rng_threshold(double p)
{
	uint32_t below = (uint32_t)(p * 0x1p32);
	return (double)below < p * 0x1p32 ? below + 1 : below;
}

#endif

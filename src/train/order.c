#include "train/order.h"

#include "base/error.h"
#include "base/rng.h"

enum { ROUNDS = 8 };

/* Half of the least even number of bits that number `windows` things. */
static int half_bits(int64_t windows)
{
	int half = 0;
	while (half < 31 && INT64_C(1) << 2 * half < windows)
		half++;
	return half;
}

int64_t order_window(uint64_t seed, int source, int64_t epoch, int64_t windows, int64_t index)
{
	check(index >= 0 && index < windows && windows <= INT64_C(1) << 62);
	int half = half_bits(windows);
	uint32_t mask = (UINT32_C(1) << half) - 1;
	int64_t place = index;
	do {
		uint32_t left = (uint32_t)(place >> half), right = (uint32_t)place & mask;
		for (uint32_t round = 0; round < ROUNDS; round++) {
			struct philox c = {{right, round, (uint32_t)epoch, (uint32_t)source}};
			uint32_t mixed = left ^ (philox(seed, c).word[0] & mask);
			left = right;
			right = mixed;
		}
		place = (int64_t)left << half | right;
	} while (place >= windows);
	return place;
}

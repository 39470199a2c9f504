#include "base/rng.h"

#include <math.h>

static void pair(uint32_t a, uint32_t b, double out[2])
{
	double u = ((double)a + 1.0) * 0x1p-32, turn = ((double)b + 1.0) * 0x1p-32;
	double r = sqrt(-2.0 * log(u)), angle = 2.0 * 3.14159265358979323846 * turn;
	out[0] = r * cos(angle);
	out[1] = r * sin(angle);
}

void rng_normal(uint64_t seed, uint32_t stream, uint64_t i, double out[4])
{
	struct philox w = philox(seed, (struct philox){{(uint32_t)i, (uint32_t)(i >> 32), stream, ~0u}});
	pair(w.word[0], w.word[1], out);
	pair(w.word[2], w.word[3], out + 2);
}

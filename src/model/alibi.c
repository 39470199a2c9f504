#include "model/alibi.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

double alibi_slope(int64_t heads, int64_t head)
{
	int64_t lower = 1;
	while (2 * lower <= heads)
		lower *= 2;
	if (head < lower)
		return exp2(-8 * (double)(head + 1) / (double)lower);
	return exp2(-8 * (double)(2 * (head - lower) + 1) / (double)(2 * lower));
}

static void fill(struct tensor slopes, int64_t heads, int64_t first, struct device *dev)
{
	void *host = malloc(tensor_bytes(slopes));
	check(host);
	for (int64_t i = 0; i < slopes.shape[0]; i++) {
		double slope = alibi_slope(heads, first + i);
		if (slopes.dtype == F64)
			((double *)host)[i] = slope;
		else
			((float *)host)[i] = (float)slope;
	}
	dev_write(dev, Q_COMPUTE, slopes, host);
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
	free(host);
}

struct tensor alibi_slopes(int64_t heads, int64_t first, int64_t count, enum dtype dtype, struct arena *arena, struct device *dev)
{
	struct tensor slopes = arena_1d(arena, dtype, count);
	if (dev)
		fill(slopes, heads, first, dev);
	return slopes;
}

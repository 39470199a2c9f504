/* divisor.h: the greatest common divisor of two counts.
 *
 * Used by the blend of data sources, and by the planner for where blocks of ranks and nodes end together. */
#ifndef MTRAIN_BASE_DIVISOR_H
#define MTRAIN_BASE_DIVISOR_H

#include <stdint.h>

/* Of counts of at least 0; with 0 it is the other one. */
static inline int64_t divisor_common(int64_t a, int64_t b)
{
	while (b > 0) {
		int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

#endif

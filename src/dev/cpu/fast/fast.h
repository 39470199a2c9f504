/* fast.h: the fast column, as it is chosen and as its own files see each other.
 *
 * Every file of fast/ is compiled once for each instruction set with FAST_BUILD set to its name ("avx512"), and FAST()
 * gives its external names that ending. F32, F16 and BF16 are computed here in FP32; F64 goes on to plain.
 *
 * Used by cpu.c (fast_pick) and by the files of fast/. */
#ifndef MTRAIN_DEV_CPU_FAST_H
#define MTRAIN_DEV_CPU_FAST_H

#include "dev/backend.h"

struct fast_column {
	const char *name; /* "avx512" */
	int flops;        /* FP32 operations that a core with these instructions can do in a cycle */
	const struct ops *ops;
	/* Bytes of workspace that ops within the limits use: one part for all threads, and one for each. */
	void (*room)(const struct dev_limits *limits, size_t *shared, size_t *each);
};

/* The column of this name, or the best (name NULL), for this processor. NULL: it is not to be had here. */
const struct fast_column *fast_pick(const char *name);

#ifdef FAST_BUILD
#define FAST_PASTE(name, build) name##_##build
#define FAST_NAME(name, build) FAST_PASTE(name, build)
#define FAST(name) FAST_NAME(fast_##name, FAST_BUILD)

#define OP_FAST(name) void FAST(name)(struct device *dev, const struct op_##name *a);
OPS(OP_FAST)
#undef OP_FAST

/* Bytes that an op needs: of the part for all threads (gemm, square_sums), of each thread's. */
size_t FAST(gemm_room)(const struct dev_limits *limits);
size_t FAST(square_sums_room)(const struct dev_limits *limits);
size_t FAST(attention_room)(const struct dev_limits *limits);
size_t FAST(attention_backward_room)(const struct dev_limits *limits);

extern const struct fast_column FAST(column);
#endif

#endif

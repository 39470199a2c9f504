/* planted.h: kernels with one bug each, and their right forms, so that a test can see the checks catch them.
 *
 * Each sums or moves `count` floats in device memory in one block. Used by test_planted.c. */
#ifndef MTRAIN_TESTS_PLANTED_H
#define MTRAIN_TESTS_PLANTED_H

#ifdef __cplusplus
extern "C" {
#endif

enum planted_bug {
	PLANTED_NONE,
	PLANTED_MISSING_BARRIER,    /* the tree of a block sum reads before the others have written */
	PLANTED_MISSING_WARP_BARRIER,
	PLANTED_WRITE_BEFORE_READ,  /* overwrites shared memory that others still read */
	PLANTED_DIVERGENT_BARRIER,  /* the last warp returns before a barrier */
	PLANTED_BARRIER_PLACES,     /* two barriers in two branches */
	PLANTED_WRONG_MASK,         /* a shuffle under a condition with the mask of the whole warp */
	PLANTED_MASK_WITHOUT_SELF,
	PLANTED_SOURCE_OUTSIDE,     /* reads from a lane that the mask leaves out */
	PLANTED_TAIL_READ,          /* ≤ for < at the end of the input */
	PLANTED_TAIL_WRITE,
	PLANTED_SHARED_OUTSIDE,     /* one past the end of a shared array */
	PLANTED_SHARED_UNWRITTEN,
	PLANTED_MISALIGNED,         /* a 16-byte load from a float's alignment */
	PLANTED_HOST_MEMORY,
	PLANTED_COPY_NOT_AWAITED,   /* reads what an asynchronous copy has not brought yet */
	PLANTED_ACCUMULATOR,        /* a sum that starts from nothing: runs, with a wrong result */
	PLANTED_OUTPUT_LEFT_OUT,    /* an output element is not written: runs, and stays NaN */
};

/* out[0 … count) = Σ in, for count ≤ 128, by the kernel with that bug. */
void planted_run(enum planted_bug bug, float *out, const float *in, int count);

#ifdef __cplusplus
}
#endif
#endif

/* anywhere.h: marks the inline functions that device code calls too.
 *
 * A rule that every backend must follow to the bit (random numbers, the verdict on a step) is written once, as an
 * inline function. `ANYWHERE` lets the CUDA compiler make it for both sides; to all other compilers it is nothing. */
#ifndef MTRAIN_BASE_ANYWHERE_H
#define MTRAIN_BASE_ANYWHERE_H

#ifdef __CUDACC__
#define ANYWHERE __host__ __device__
#else
#define ANYWHERE
#endif

#endif

/* backend.h: the CUDA backend: one card a rank, its ops by our kernels and by cuBLASLt.
 *
 * A queue is a stream; a mark is an event; work of transports that the host drives (dev_post) holds its stream by a
 * number in pinned memory that the host moves on when the work is done, so the host never waits but in dev_finish.
 * Small copies between host and card go through pinned memory of the backend's own, so they do not hold the host.
 * Nothing is allocated on the card but by take, open and reserve, and by what makes graphs (graphs.h).
 *
 * Used by backends.c, and by tests that run it on the emulator. */
#ifndef MTRAIN_CUDA_BACKEND_H
#define MTRAIN_CUDA_BACKEND_H

#include "dev/backend.h"

extern const struct backend backend_cuda;

#endif

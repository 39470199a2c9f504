/* card.h: the emulated card as a backend, so that ops' tests can call the CUDA kernels.
 *
 * Ops run at once on the emulator; gemm, which cuBLASLt computes on a card, is the plain column's. Two threads mean
 * that blocks and threads run backwards. The workspace is full of NaN before each op. Used by test_kernels.c. */
#ifndef MTRAIN_TESTS_CARD_H
#define MTRAIN_TESTS_CARD_H

#include "dev/backend.h"

extern const struct backend backend_card;

#endif

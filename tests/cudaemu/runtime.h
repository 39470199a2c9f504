/* runtime.h: the emulated streams, as kernels' launches and cuBLASLt's stand-in see them. */
#ifndef MTRAIN_TESTS_EMU_RUNTIME_H
#define MTRAIN_TESTS_EMU_RUNTIME_H

#include <cuda_runtime_api.h>
#include <functional>

/* Puts an item at the end of a stream; it runs until it gives true. Without a stream it runs now. */
void emu_enqueue(cudaStream_t stream, std::function<bool()> item);

bool emu_backwards();

#endif

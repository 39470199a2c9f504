/* runtime.h: the emulated streams, as kernels' launches and cuBLASLt's stand-in see them. */
#ifndef MTRAIN_TESTS_EMU_RUNTIME_H
#define MTRAIN_TESTS_EMU_RUNTIME_H

#include <cuda_runtime_api.h>
#include <functional>

/* Puts an item at the end of a stream; it runs until it gives true. Without a stream it runs now. Device memory is open to
 * it unless it says that it needs none. */
void emu_enqueue(cudaStream_t stream, std::function<bool()> item, bool memory = true);

/* The same for an item that can run but once: it cannot be part of a graph. */
void emu_enqueue_once(cudaStream_t stream, std::function<bool()> item);

/* The host's wait for a stream; fails where it would last for ever. */
void emu_drain(cudaStream_t stream);

bool emu_backwards();

#endif

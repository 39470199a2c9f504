/* memory.h: the emulated card's memory, and who touched shared memory last.
 *
 * Device memory is one reserved region with a byte of shadow for each byte: 1 where an allocation covers it. Shared
 * memory is one region for the block that runs; each of its bytes remembers its last writer and reader and when.
 * Used by the scheduler (block.cc), the hooks and the runtime. */
#ifndef MTRAIN_TESTS_EMU_MEMORY_H
#define MTRAIN_TESTS_EMU_MEMORY_H

#include <cstddef>
#include <cstdint>

enum { SHARED_MOST = 227 << 10 };

/* A new block with `dynamic` bytes of shared memory: all of it is unwritten and full of NaN. */
void memory_new_block(size_t dynamic);
void memory_block_barrier();
void memory_warp_barrier(int warp);

/* The launch's parameters, which threads read. */
void memory_set_parameters(const void *at, size_t bytes);

/* Judges an access by the thread that runs; fails (emu_fail) when it is wrong. */
void memory_access(const void *at, size_t bytes, bool write, bool aligned);

/* Device memory that the runtime gave is closed to the host: only while a stream's work runs can it be touched. */
void memory_guard();
void memory_open();
void memory_close();
bool memory_is_device(const void *at);

/* Where the scheduler is asked: ends the process with a line that names kernel, block and thread. */
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

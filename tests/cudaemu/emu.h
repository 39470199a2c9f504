/* emu.h: a graphics card made of one CPU thread: its memory, and how strictly it looks.
 *
 * The emulator runs CUDA kernels, compiled by the host compiler, with CUDA's semantics: grid, blocks, threads as
 * fibers, barriers, warp operations, shared memory, tensor-core instructions. What a real card would let pass it
 * stops: one line on stderr, "cudaemu: KERNEL block (x,y,z) thread t: cause", and exit code EMU_FAULT. It finds
 *   - accesses outside of an allocation, of a shared array, and to host memory;
 *   - misaligned vector accesses;
 *   - shared memory read before it was written, and new device memory, which is full of NaN;
 *   - reads and writes of shared memory that no barrier separates (between threads of a warp __syncwarp serves too);
 *   - barriers that not all threads of a block reach, or reach at different places;
 *   - shuffles and votes whose mask leaves out the caller, names lanes that do not come, or whose source lane is out;
 *   - asynchronous copies that are read before they were waited for (they arrive only then).
 *   - device memory that the host touches where it was taken through the runtime (a segmentation fault), but for large blocks;
 *   - calls that may not be made while a stream is captured, which break the capture (what a card would leave out of the graph
 *     or other threads could break ends the process);
 *   - copies that take device for host memory or the other way round, and copies of host memory that is not pinned behind
 *     work that only the host can push on, where a card would hold the host for ever.
 * The access checks need the kernels to be compiled with -fsanitize=thread, whose calls the emulator answers itself
 * (hooks.cc); under AddressSanitizer its shadow memory does the bounds and the rest of these checks is off.
 *
 * Used by tests, from C. The kernels' side is cudaemu.h. */
#ifndef MTRAIN_TESTS_EMU_H
#define MTRAIN_TESTS_EMU_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMU_FAULT = 99 };

void *emu_take(size_t bytes);    /* device memory, exactly this long, full of NaN (all bits set); NULL: none left */
void emu_give_back(void *memory);

/* Bytes of an allocation that kernels may not touch from now on, or may again. */
void emu_show(const void *at, size_t bytes, bool shown);

/* Runs blocks and threads from the last to the first. Right kernels give the same bits in either order. */
void emu_set_backwards(bool backwards);

/* Whether loads and stores are checked (the kernels were compiled for it). */
bool emu_checks_accesses(void);

/* What was queued on streams so far: work of its own, and of graphs. */
struct emu_counts {
	long direct;             /* kernels, products and copies */
	long graphs;             /* that there are now */
	long launches, launched; /* of graphs; items of theirs */
};
const struct emu_counts *emu_counted(void);

#ifdef __cplusplus
}
#endif
#endif

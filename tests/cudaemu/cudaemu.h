/* cudaemu.h: what kernels see of CUDA when the host compiler reads them.
 *
 * cuda/launch.h includes this in place of the CUDA compiler's own world: the built-in variables, barriers, warp
 * operations, and a launch that runs the grid on the spot. The checks are described in emu.h. */
#ifndef MTRAIN_TESTS_CUDAEMU_H
#define MTRAIN_TESTS_CUDAEMU_H

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "runtime.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__
#undef __forceinline__
#define __forceinline__ inline

/* What is under the sanitizer's eye is the kernel, not the emulator's own templates. */
#define EMU_OWN __attribute__((no_sanitize("thread")))

struct emu_place {
	const char *file;
	int line;
};
#define EMU_HERE (emu_place{__FILE__, __LINE__})

struct emu_thread {
	uint3 index;
	int number, warp, lane;
};

extern emu_thread *emu_self;
extern uint3 emu_block;
extern dim3 emu_block_dim, emu_grid_dim;
#define threadIdx (emu_self->index)
#define blockIdx emu_block
#define blockDim emu_block_dim
#define gridDim emu_grid_dim

void emu_barrier(emu_place place);
void emu_warp_barrier(unsigned mask, emu_place place);
#define __syncthreads() emu_barrier(EMU_HERE)
#define EMU_MASK_OR_ALL(...) EMU_MASK_PICK(__VA_ARGS__ __VA_OPT__(, ) 0xffffffffu)
#define EMU_MASK_PICK(mask, ...) (mask)
#define __syncwarp(...) emu_warp_barrier(EMU_MASK_OR_ALL(__VA_ARGS__), EMU_HERE)

/* One operation of a warp: each lane of the mask hands in `in` and gets `out`; `apply` runs once, when all are there. */
struct emu_operands {
	const void *in[32];
	void *out[32];
	unsigned mask;
	int kind;
};
void emu_warp(unsigned mask, emu_place place, int kind, const void *in, void *out, void (*apply)(emu_operands *));

enum { EMU_XOR, EMU_DOWN, EMU_UP, EMU_INDEX };
struct emu_word {
	uint64_t bits;
	int argument;
};
void emu_shuffle_apply(emu_operands *o);
void emu_vote_apply(emu_operands *o);

template <typename V> EMU_OWN V emu_shuffle(unsigned mask, V v, int argument, int kind, emu_place place)
{
	static_assert(sizeof v <= 8, "shuffles move up to 8 bytes");
	emu_word in = {0, argument};
	uint64_t out = 0;
	std::memcpy(&in.bits, &v, sizeof v);
	emu_warp(mask, place, kind, &in, &out, emu_shuffle_apply);
	std::memcpy(&v, &out, sizeof v);
	return v;
}
#define __shfl_xor_sync(mask, v, lanes) emu_shuffle(mask, v, lanes, EMU_XOR, EMU_HERE)
#define __shfl_down_sync(mask, v, lanes) emu_shuffle(mask, v, lanes, EMU_DOWN, EMU_HERE)
#define __shfl_up_sync(mask, v, lanes) emu_shuffle(mask, v, lanes, EMU_UP, EMU_HERE)
#define __shfl_sync(mask, v, lane) emu_shuffle(mask, v, lane, EMU_INDEX, EMU_HERE)

EMU_OWN static inline unsigned emu_ballot(unsigned mask, bool v, emu_place place)
{
	unsigned out = 0;
	emu_warp(mask, place, 0, &v, &out, emu_vote_apply);
	return out;
}
#define __ballot_sync(mask, v) emu_ballot(mask, v, EMU_HERE)
#define __any_sync(mask, v) (emu_ballot(mask, v, EMU_HERE) != 0)
#define __all_sync(mask, v) (emu_ballot(mask, v, EMU_HERE) == (mask))

/* Shared memory. A static array is known by its place in the code: the address of a static of each instance. */
void *emu_shared_static(const void *key, size_t bytes, size_t align);
void *emu_shared_dynamic(void);
#define shared_array(type, name, count)                                                                       \
	static char name##_key;                                                                               \
	type *name = static_cast<type *>(emu_shared_static(&name##_key, sizeof(type) * (count), alignof(type)))
#define shared_dynamic(type, name) type *name = static_cast<type *>(emu_shared_dynamic())

/* An access that no load or store in the program shows: made by an instruction that the emulator stands in for. */
void emu_access(const void *at, size_t bytes, bool write);

/* Asynchronous copies arrive when they are waited for. `bytes` of 16 are read, the rest is zero. */
void emu_copy_async(void *shared, const void *global, int bytes);
void emu_copy_commit(void);
void emu_copy_wait(int pending);

void emu_run(const char *name, dim3 grid, dim3 block, size_t shared, void (*body)(void *), void *closure,
	     size_t closure_bytes);

template <typename... P, typename... A>
void emu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
	struct closure {
		void (*kernel)(P...);
		std::tuple<P...> args;
	} c = {kernel, std::tuple<P...>(args...)};
	emu_run(
		name, grid, block, shared,
		[](void *p) EMU_OWN {
			closure *c = static_cast<closure *>(p);
			std::apply(c->kernel, c->args);
		},
		&c, sizeof c);
}

/* The launch runs when its stream comes to it; the arguments are taken now. */
template <typename... P, typename... A>
void emu_launch_on(cudaStream_t stream, const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
	emu_enqueue(stream, [=] {
		emu_launch(name, kernel, grid, block, shared, static_cast<P>(args)...);
		return true;
	});
}
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
	emu_launch_on(stream, #kernel, kernel, grid, block, shared, __VA_ARGS__)

EMU_OWN static inline float __uint_as_float(unsigned u)
{
	float f;
	std::memcpy(&f, &u, sizeof f);
	return f;
}

EMU_OWN static inline unsigned __float_as_uint(float f)
{
	unsigned u;
	std::memcpy(&u, &f, sizeof u);
	return u;
}

static inline float rsqrtf(float x)
{
	return 1.0f / std::sqrt(x);
}

#endif

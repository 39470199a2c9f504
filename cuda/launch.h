/* launch.h: the ground that every .cu file stands on: the compiler's world and how a kernel is started.
 *
 * Two compilers read the kernels: nvcc for a card, and the host's for the emulator of the tests, which cannot parse
 * <<<>>> nor place shared memory. So launches and shared arrays go through three macros:
 *   LAUNCH(kernel, grid, block, shared, stream, arguments…)   a template kernel's name in parentheses
 *   shared_array(type, name, count)                           a static array of the block
 *   shared_dynamic(type, name)                                the launch's `shared` bytes, aligned to 16
 * Used by .cu files only. */
#ifndef MTRAIN_CUDA_LAUNCH_H
#define MTRAIN_CUDA_LAUNCH_H

#include "kernels.h"

#ifdef __CUDACC__

/* Tells the emulator of a vector access, whose alignment it checks; on a card the access itself does. */
#define TOUCH(at, bytes, write) ((void)0)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define shared_array(type, name, count) __shared__ __align__(16) type name[count]
#define shared_dynamic(type, name)                                    \
	extern __shared__ __align__(16) unsigned char dynamic_bytes[]; \
	type *name = reinterpret_cast<type *>(dynamic_bytes)

/* More shared memory than 48 KiB must be asked for once a kernel. */
static inline void launch_allow(const void *kernel, size_t shared)
{
	if (shared > 48 << 10)
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
}

static inline void launch_check(const char *name, const char *file, int line)
{
	cudaError_t e = cudaGetLastError();
	if (e != cudaSuccess)
		die(CODE_MACHINE, "%s:%d: launch of %s: %s", file, line, name, cudaGetErrorString(e));
}

/* Every kernel that some LAUNCH names is listed before main, for kernel_load. */
bool launch_list(const void *kernel);
template <auto kernel> struct launch_listed {
	static const bool listed;
};
template <auto kernel> const bool launch_listed<kernel>::listed = launch_list(reinterpret_cast<const void *>(kernel));

#define LAUNCH(kernel, grid, block, shared, stream, ...)                    \
	do {                                                                \
		auto launched = launch_listed<kernel>::listed ? kernel : nullptr; \
		launch_allow((const void *)launched, shared);               \
		launched<<<grid, block, shared, stream>>>(__VA_ARGS__);     \
		launch_check(#kernel, __FILE__, __LINE__);                  \
	} while (0)

#else
#include "cudaemu.h"
#define TOUCH(at, bytes, write) emu_access(at, bytes, write)
#endif

#define FULL_WARP 0xffffffffu

/* The same number, of which the compiler knows nothing: what is computed from it after a loop is not computed before and
 * kept in registers through the loop. */
__device__ inline int forget(int x)
{
	asm volatile("" : "+r"(x));
	return x;
}

static inline int64_t divide_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Runs the statements with T the C++ type of a dtype that kernels are made for. */
#define WITH_TYPE(dtype_, ...)                                                                              \
	do {                                                                                                \
		switch (dtype_) {                                                                           \
		case F16: {                                                                                 \
			using T = __half;                                                                   \
			__VA_ARGS__;                                                                        \
			break;                                                                              \
		}                                                                                           \
		case BF16: {                                                                                \
			using T = __nv_bfloat16;                                                            \
			__VA_ARGS__;                                                                        \
			break;                                                                              \
		}                                                                                           \
		case F32: {                                                                                 \
			using T = float;                                                                    \
			__VA_ARGS__;                                                                        \
			break;                                                                              \
		}                                                                                           \
		default:                                                                                    \
			die(CODE_MACHINE, "%s:%d: no kernel for %s", __FILE__, __LINE__, dtype_name(dtype_)); \
		}                                                                                           \
	} while (0)

#endif

/* mma.h: the tensor-core and asynchronous-copy instructions, the one place that knows how they are written.
 *
 * On a card they are single instructions of sm_80 and later (PTX ISA, "Matrix Fragments for mma.m16n8k16"); for the
 * host compiler the emulator does the same to the fragments of a warp's 32 lanes. With g = lane/4 and i = lane%4:
 *   A [16, 16]: a0 = (g, 2i) (g, 2i+1); a1 = row g+8; a2 = columns + 8; a3 = both
 *   B [16, 8]:  b0 = (2i, g) (2i+1, g); b1 = rows + 8
 *   C [16, 8]:  c0, c1 = (g, 2i) (g, 2i+1); c2, c3 = row g+8
 * Used by attention kernels only. */
#ifndef MTRAIN_CUDA_MMA_H
#define MTRAIN_CUDA_MMA_H

#include "vector.h"

#ifdef __CUDA_ARCH__

/* c += A·B in FP32. */
template <typename T> __device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void mma<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm volatile(
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8×8 matrices of 16-bit elements: lane 8m + r gives the address of row r of matrix m, in shared memory; register
 * m of lane l gets elements 2(l%4) and 2(l%4)+1 of row l/4 of matrix m. */
__device__ inline void load_matrices(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"((uint32_t)__cvta_generic_to_shared(row))
		     : "memory");
}

/* The same of the transposed matrices. */
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"((uint32_t)__cvta_generic_to_shared(row))
		     : "memory");
}

/* 16 bytes from device to shared memory past the registers; with `there` false zeros, and nothing is read. */
__device__ inline void copy_async(void *shared, const void *global, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
		     "l"(global), "r"(there ? 16 : 0)
		     : "memory");
}

/* Ends a group of copies. */
__device__ inline void copy_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `pending` of this thread's latest groups are under way. */
template <int pending> __device__ inline void copy_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* 2^x to FP32's last bits; 0 for very negative x. */
__device__ inline float exp2_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

#elif !defined(__CUDACC__)
#include "mma_emu.h"
#else

/* The host's pass of the CUDA compiler needs the names only. */
template <typename T> __device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
__device__ void load_matrices(uint32_t (&r)[4], const void *row);
__device__ void load_matrices_transposed(uint32_t (&r)[4], const void *row);
__device__ void copy_async(void *shared, const void *global, bool there);
__device__ void copy_commit();
template <int pending> __device__ void copy_wait();
__device__ float exp2_fast(float x);

#endif

#endif

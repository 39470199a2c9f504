#include "planted.h"

#include "mma.h"

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" /* one of the bugs, which the compiler would find first */

enum { THREADS = 128 };

static __device__ float sum_of_warp(float v, planted_bug bug)
{
	int lane = (int)threadIdx.x % 32;
	if (bug == PLANTED_WRONG_MASK && lane < 16)
		v += __shfl_xor_sync(FULL_WARP, v, 1);
	if (bug == PLANTED_MASK_WITHOUT_SELF)
		v += __shfl_xor_sync(0x0000ffffu, v, 1);
	if (bug == PLANTED_SOURCE_OUTSIDE && lane < 16)
		v += __shfl_xor_sync(0x0000ffffu, v, 16);
	return warp_sum(v);
}

static __global__ void planted_kernel(float *out, const float *in, int count, planted_bug bug)
{
	shared_array(float, part, THREADS);
	shared_array(float4, staged, 1);
	int i = (int)threadIdx.x;
	if (bug != PLANTED_SHARED_UNWRITTEN)
		part[i] = 0;
	__syncthreads();
	float own[2]; /* one accumulator for even threads, one for odd ones */
	if (bug != PLANTED_ACCUMULATOR)
		own[0] = own[1] = 0;
	if (i < count + (bug == PLANTED_TAIL_READ))
		own[i % 2] += in[i];
	float sum = own[i % 2];
	if (bug == PLANTED_MISALIGNED && read_16(in + 1).x == 1)
		out[0] = 0;
	if (bug == PLANTED_DIVERGENT_BARRIER && i >= THREADS - 32)
		return;
	if (bug == PLANTED_COPY_NOT_AWAITED && i == 0) {
		copy_async(staged, in, true);
		copy_commit();
		copy_wait<1>();
		if (staged[0].x < 0)
			out[0] = 0;
		copy_wait<0>();
	}
	if (bug != PLANTED_SHARED_UNWRITTEN || i != 77)
		part[i] = sum;
	if (bug == PLANTED_MISSING_WARP_BARRIER && part[i ^ 1] < 0)
		out[0] = 0;
	if (bug == PLANTED_BARRIER_PLACES) {
		if (i < 64)
			__syncthreads();
		else
			__syncthreads();
	}
	if (bug != PLANTED_MISSING_BARRIER)
		__syncthreads();
	sum = 0;
	for (int j = i % 32; j < THREADS; j += 32)
		sum += part[j];
	if (bug == PLANTED_SHARED_OUTSIDE && part[THREADS] < 0)
		out[0] = 0;
	if (bug != PLANTED_WRITE_BEFORE_READ)
		__syncthreads();
	part[i] = 0;
	sum = sum_of_warp(sum, bug);
	if (bug == PLANTED_OUTPUT_LEFT_OUT && i == count - 1)
		return;
	if (i < count + (bug == PLANTED_TAIL_WRITE))
		out[i] = sum;
}

void planted_run(enum planted_bug bug, float *out, const float *in, int count)
{
	float host[THREADS] = {0};
	LAUNCH(planted_kernel, 1, THREADS, 0, nullptr, out, bug == PLANTED_HOST_MEMORY ? host : in, count, bug);
}

/* vector.h: memory in 16-byte pieces, and sums over a block.
 *
 * A piece is WIDTH<T> elements (8 of 16 bits, 4 of 32), computed in float. `whole` says that rows keep 16-byte
 * alignment, so that a piece is one load; it is the same for a whole launch. Otherwise, and for `count` elements that
 * are not a whole piece, elements go one by one and what lies beyond reads as 0. Used by .cu files only. */
#ifndef MTRAIN_CUDA_VECTOR_H
#define MTRAIN_CUDA_VECTOR_H

#include <initializer_list>

#include "launch.h"

template <typename T> constexpr int WIDTH = 16 / (int)sizeof(T);

__device__ inline float to_float(float x)
{
	return x;
}
__device__ inline float to_float(__half x)
{
	return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float(float x)
{
	return x;
}
template <> __device__ inline __half from_float(float x)
{
	return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 from_float(float x)
{
	return __float2bfloat16_rn(x);
}

/* Two 16-bit elements in a register, the first in the low half. */
template <typename T> __device__ inline uint32_t pair_from(float a, float b);
template <> __device__ inline uint32_t pair_from<__half>(float a, float b)
{
	__half2 h = __floats2half2_rn(a, b);
	uint32_t bits;
	memcpy(&bits, &h, sizeof bits);
	return bits;
}
template <> __device__ inline uint32_t pair_from<__nv_bfloat16>(float a, float b)
{
	__nv_bfloat162 h = __floats2bfloat162_rn(a, b);
	uint32_t bits;
	memcpy(&bits, &h, sizeof bits);
	return bits;
}

template <typename T> __device__ inline float2 pair_floats(uint32_t bits);
template <> __device__ inline float2 pair_floats<__half>(uint32_t bits)
{
	__half2 h;
	memcpy(static_cast<void *>(&h), &bits, sizeof bits);
	return __half22float2(h);
}
template <> __device__ inline float2 pair_floats<__nv_bfloat16>(uint32_t bits)
{
	return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

template <typename T> __device__ inline void unpack(float (&v)[WIDTH<T>], uint4 r)
{
	uint32_t word[4] = {r.x, r.y, r.z, r.w};
	for (int i = 0; i < 4; i++) {
		if constexpr (sizeof(T) == 4) {
			v[i] = __uint_as_float(word[i]);
		} else {
			float2 f = pair_floats<T>(word[i]);
			v[2 * i] = f.x;
			v[2 * i + 1] = f.y;
		}
	}
}

template <typename T> __device__ inline uint4 pack(const float (&v)[WIDTH<T>])
{
	uint32_t word[4];
	for (int i = 0; i < 4; i++) {
		if constexpr (sizeof(T) == 4)
			word[i] = __float_as_uint(v[i]);
		else
			word[i] = pair_from<T>(v[2 * i], v[2 * i + 1]);
	}
	return make_uint4(word[0], word[1], word[2], word[3]);
}

__device__ inline uint4 read_16(const void *p)
{
	TOUCH(p, 16, false);
	return *static_cast<const uint4 *>(p);
}

__device__ inline void write_16(void *p, uint4 v)
{
	TOUCH(p, 16, true);
	*static_cast<uint4 *>(p) = v;
}

/* Two neighbouring sums. */
__device__ inline float2 read_8(const float *p)
{
	TOUCH(p, 8, false);
	return *reinterpret_cast<const float2 *>(p);
}

__device__ inline void write_8(float *p, float2 v)
{
	TOUCH(p, 8, true);
	*reinterpret_cast<float2 *>(p) = v;
}

/* A piece as it lies in memory, for kernels that need it twice. */
template <typename T> __device__ inline uint4 load_raw(const T *p, int64_t count, bool whole)
{
	if (whole)
		return read_16(p);
	float v[WIDTH<T>];
	for (int i = 0; i < WIDTH<T>; i++)
		v[i] = i < count ? to_float(p[i]) : 0.0f;
	return pack<T>(v);
}

template <typename T> __device__ inline void load(float (&v)[WIDTH<T>], const T *p, int64_t count, bool whole)
{
	if (whole) {
		unpack<T>(v, read_16(p));
		return;
	}
	for (int i = 0; i < WIDTH<T>; i++)
		v[i] = i < count ? to_float(p[i]) : 0.0f;
}

template <typename T> __device__ inline void store(T *p, const float (&v)[WIDTH<T>], int64_t count, bool whole)
{
	if (whole) {
		write_16(p, pack<T>(v));
		return;
	}
	for (int i = 0; i < WIDTH<T>; i++) {
		if (i < count)
			p[i] = from_float<T>(v[i]);
	}
}

/* W floats of a sum type beside W elements of T. */
template <int W> __device__ inline void load_sums(float (&v)[W], const float *p, int64_t count, bool whole)
{
	if (whole) {
		for (int i = 0; i < W; i += 4) {
			uint4 f = read_16(p + i);
			v[i] = __uint_as_float(f.x), v[i + 1] = __uint_as_float(f.y);
			v[i + 2] = __uint_as_float(f.z), v[i + 3] = __uint_as_float(f.w);
		}
		return;
	}
	for (int i = 0; i < W; i++)
		v[i] = i < count ? p[i] : 0.0f;
}

template <int W> __device__ inline void store_sums(float *p, const float (&v)[W], int64_t count, bool whole)
{
	if (whole) {
		for (int i = 0; i < W; i += 4)
			write_16(p + i, make_uint4(__float_as_uint(v[i]), __float_as_uint(v[i + 1]),
						   __float_as_uint(v[i + 2]), __float_as_uint(v[i + 3])));
		return;
	}
	for (int i = 0; i < W; i++) {
		if (i < count)
			p[i] = v[i];
	}
}

/* Whether a row length and pointers keep every piece whole; NULL pointers do not matter. */
template <typename T> static inline bool rows_are_whole(int64_t columns, std::initializer_list<const void *> pointers)
{
	bool whole = columns % WIDTH<T> == 0;
	for (const void *p : pointers)
		whole = whole && (uintptr_t)p % 16 == 0;
	return whole;
}

__device__ inline float warp_sum(float v)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(FULL_WARP, v, lanes);
	return v;
}

/* Sums of N values over all threads of a block of whole warps, in a fixed order, given to all. */
template <int N> __device__ inline void block_sum(float (&v)[N])
{
	shared_array(float, part, 32 * N);
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32;
	for (int i = 0; i < N; i++)
		v[i] = warp_sum(v[i]);
	if (warps == 1)
		return;
	__syncthreads(); /* an earlier sum is read by all */
	if (lane == 0) {
		for (int i = 0; i < N; i++)
			part[warp * N + i] = v[i];
	}
	__syncthreads();
	for (int i = 0; i < N; i++)
		v[i] = warp_sum(lane < warps ? part[lane * N + i] : 0.0f);
}

#endif

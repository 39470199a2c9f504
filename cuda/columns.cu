#include "columns.h"

#include "dropout.h"
#include "vector.h"

enum { WARPS = 8, BLOCKS_WANTED = 1024, ROWS_A_PART = 32 };

static __global__ void finish_kernel(float *sum, float *second, const float *partial, int64_t parts, int64_t C)
{
	shared_array(float, lane_sums, WARPS * 32);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int64_t c = (int64_t)blockIdx.x * 32 + lane;
	if (blockIdx.y) {
		sum = second;
		partial += parts * C;
	}
	float s = 0;
	if (c < C) {
#pragma unroll 8
		for (int64_t p = warp; p < parts; p += WARPS)
			s += partial[p * C + c];
	}
	lane_sums[warp * 32 + lane] = s;
	__syncthreads();
	if (warp || c >= C)
		return;
	s = sum[c];
	for (int w = 0; w < WARPS; w++)
		s += lane_sums[w * 32 + lane];
	sum[c] = s;
}

void columns_finish(const struct kernel_place *k, float *sum, float *second, const float *partial, int64_t parts,
		    int64_t C)
{
	dim3 grid((unsigned)divide_up(C, 32), second ? 2 : 1);
	LAUNCH(finish_kernel, grid, WARPS * 32, 0, k->stream, sum, second, partial, parts, C);
}

/* Rows of one slice added up by each of the block's warps, then over the warps; on the way dx, where it is wanted. */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
	columns_kernel(float *partial, T *dx, const T *dout, drop d, int64_t N, int64_t C, int64_t rows, bool whole)
{
	constexpr int W = WIDTH<T>;
	shared_array(float, lane_sums, WARPS * 32 * W);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int64_t c = ((int64_t)blockIdx.x * 32 + lane) * W, begin = (int64_t)blockIdx.y * rows;
	int64_t end = begin + rows < N ? begin + rows : N;
	float sum[W];
#pragma unroll
	for (int i = 0; i < W; i++)
		sum[i] = 0;
	if (c < C) {
#pragma unroll 4
		for (int64_t n = begin + warp; n < end; n += WARPS) {
			float v[W];
			load(v, dout + n * C + c, C - c, whole);
			drop_row(v, d, n, C, c);
			if (dx)
				store(dx + n * C + c, v, C - c, whole);
#pragma unroll
			for (int i = 0; i < W; i++)
				sum[i] += v[i];
		}
	}
	if (!partial)
		return;
#pragma unroll
	for (int i = 0; i < W; i++)
		lane_sums[(warp * W + i) * 32 + lane] = sum[i];
	__syncthreads();
	if (warp >= W)
		return; /* warp i finishes element i of each lane's piece */
	c += warp;
	if (c >= C)
		return;
	float s = 0;
	for (int w = 0; w < WARPS; w++)
		s += lane_sums[(w * W + warp) * 32 + lane];
	partial[(int64_t)blockIdx.y * C + c] = s;
}

template <typename T>
static void columns(const struct kernel_place *k, struct tensor dbias, struct tensor dx, struct tensor dout, drop d)
{
	int64_t C = dout.shape[1], N = dout.shape[0];
	int64_t tiles = divide_up(C, 32 * WIDTH<T>), parts = BLOCKS_WANTED / tiles;
	if (parts > divide_up(N, ROWS_A_PART))
		parts = divide_up(N, ROWS_A_PART);
	if (parts < 1)
		parts = 1;
	bool whole = rows_are_whole<T>(C, {dx.data, dout.data});
	float *partial = tensor_given(dbias) ? static_cast<float *>(k->workspace) : nullptr;
	dim3 grid((unsigned)tiles, (unsigned)parts);
	LAUNCH((columns_kernel<T>), grid, WARPS * 32, 0, k->stream, partial, static_cast<T *>(dx.data),
	       static_cast<const T *>(dout.data), d, N, C, divide_up(N, parts), whole);
	if (partial)
		columns_finish(k, static_cast<float *>(dbias.data), nullptr, partial, parts, C);
}

void kernel_bias_backward(const struct kernel_place *k, const struct op_bias_backward *a)
{
	WITH_TYPE(a->dout.dtype, columns<T>(k, a->dbias, tensor{}, a->dout, drop{}));
}

void kernel_residual_backward(const struct kernel_place *k, const struct op_residual_backward *a)
{
	WITH_TYPE(a->dsum.dtype, columns<T>(k, a->dbias, a->dx, a->dsum, drop_of(&a->dropout, k->scalars)));
}

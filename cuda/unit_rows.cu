#include "vector.h"

enum { THREADS = 256 };

/* A block has one row, which it reads a second time while it is in the nearest cache. */
template <typename T>
__global__ void __launch_bounds__(THREADS) unit_rows_forward_kernel(T *out, float *scales, const T *x, int64_t C, bool aligned)
{
	constexpr int W = WIDTH<T>;
	int64_t row = blockIdx.x, at = row * C;
	float squares[1] = {0}, v[W];
	for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += THREADS * W) {
		load(v, x + at + c, C - c, aligned);
#pragma unroll
		for (int i = 0; i < W; i++)
			squares[0] += v[i] * v[i]; /* 0 beyond the row */
	}
	block_sum(squares);
	float length = sqrtf(squares[0]), scale = 1.0f / (length <= 1e-12f ? 1e-12f : length); /* a NaN stays one */
	for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += THREADS * W) {
		load(v, x + at + c, C - c, aligned);
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] *= scale;
		store(out + at + c, v, C - c, aligned);
	}
	if (threadIdx.x == 0)
		scales[row] = scale;
}

void kernel_unit_rows_forward(const struct kernel_place *k, const struct op_unit_rows_forward *a)
{
	int64_t rows = a->x.shape[0], C = a->x.shape[1];
	WITH_TYPE(a->x.dtype,
		  LAUNCH((unit_rows_forward_kernel<T>), (unsigned)rows, THREADS, 0, k->stream, static_cast<T *>(a->out.data),
			 static_cast<float *>(a->scale.data), static_cast<const T *>(a->x.data), C,
			 rows_are_whole<T>(C, {a->out.data, a->x.data})));
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	unit_rows_backward_kernel(float *dx, const float *dout, const T *x, const float *scales, int64_t C, bool aligned)
{
	constexpr int W = WIDTH<T>;
	int64_t row = blockIdx.x, at = row * C;
	float along[1] = {0}, v[W], d[W], scale = scales[row];
	for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += THREADS * W) {
		load(v, x + at + c, C - c, aligned);
		load_sums(d, dout + at + c, C - c, aligned);
#pragma unroll
		for (int i = 0; i < W; i++)
			along[0] += v[i] * scale * d[i];
	}
	block_sum(along);
	for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += THREADS * W) {
		float sum[W];
		load(v, x + at + c, C - c, aligned);
		load_sums(d, dout + at + c, C - c, aligned);
		load_sums(sum, dx + at + c, C - c, aligned);
#pragma unroll
		for (int i = 0; i < W; i++)
			sum[i] += scale * (d[i] - v[i] * scale * along[0]);
		store_sums(dx + at + c, sum, C - c, aligned);
	}
}

void kernel_unit_rows_backward(const struct kernel_place *k, const struct op_unit_rows_backward *a)
{
	int64_t rows = a->x.shape[0], C = a->x.shape[1];
	WITH_TYPE(a->x.dtype,
		  LAUNCH((unit_rows_backward_kernel<T>), (unsigned)rows, THREADS, 0, k->stream, static_cast<float *>(a->dx.data),
			 static_cast<const float *>(a->dout.data), static_cast<const T *>(a->x.data),
			 static_cast<const float *>(a->scale.data), C,
			 rows_are_whole<T>(C, {a->dx.data, a->dout.data, a->x.data})));
}

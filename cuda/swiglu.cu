#include "vector.h"

enum { THREADS = 256 };

/* A block has a piece of one row for each of its threads. */
template <typename T> static dim3 grid(int64_t rows, int64_t width)
{
	return dim3((unsigned)rows, (unsigned)divide_up(width, THREADS * WIDTH<T>));
}

template <typename T> __device__ inline int64_t column()
{
	return ((int64_t)blockIdx.y * THREADS + threadIdx.x) * WIDTH<T>;
}

__device__ inline float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

template <typename T>
__global__ void __launch_bounds__(THREADS) swiglu_forward_kernel(T *out, const T *x, int64_t width, bool aligned)
{
	int64_t row = blockIdx.x, c = column<T>(), left = width - c;
	if (left <= 0)
		return;
	bool whole = aligned && left >= WIDTH<T>;
	const T *gates = x + 2 * row * width + c;
	float gate[WIDTH<T>], up[WIDTH<T>];
	load(gate, gates, left, whole);
	load(up, gates + width, left, whole);
#pragma unroll
	for (int i = 0; i < WIDTH<T>; i++)
		up[i] *= gate[i] * sigmoid(gate[i]);
	store(out + row * width + c, up, left, whole);
}

void kernel_swiglu_forward(const struct kernel_place *k, const struct op_swiglu_forward *a)
{
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	WITH_TYPE(a->out.dtype,
		  LAUNCH((swiglu_forward_kernel<T>), grid<T>(rows, width), THREADS, 0, k->stream, static_cast<T *>(a->out.data),
			 static_cast<const T *>(a->x.data), width, rows_are_whole<T>(width, {a->out.data, a->x.data})));
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	swiglu_backward_kernel(T *dx, const T *dout, const T *x, int64_t width, bool aligned)
{
	int64_t row = blockIdx.x, c = column<T>(), left = width - c, at = 2 * row * width + c;
	if (left <= 0)
		return;
	bool whole = aligned && left >= WIDTH<T>;
	float gate[WIDTH<T>], up[WIDTH<T>], d[WIDTH<T>];
	load(gate, x + at, left, whole);
	load(up, x + at + width, left, whole);
	load(d, dout + row * width + c, left, whole);
#pragma unroll
	for (int i = 0; i < WIDTH<T>; i++) {
		float s = sigmoid(gate[i]), through = d[i] * up[i];
		up[i] = d[i] * gate[i] * s;
		gate[i] = through * s * (1.0f + gate[i] * (1.0f - s));
	}
	store(dx + at, gate, left, whole);
	store(dx + at + width, up, left, whole);
}

void kernel_swiglu_backward(const struct kernel_place *k, const struct op_swiglu_backward *a)
{
	int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	WITH_TYPE(a->dout.dtype,
		  LAUNCH((swiglu_backward_kernel<T>), grid<T>(rows, width), THREADS, 0, k->stream, static_cast<T *>(a->dx.data),
			 static_cast<const T *>(a->dout.data), static_cast<const T *>(a->x.data), width,
			 rows_are_whole<T>(width, {a->dx.data, a->dout.data, a->x.data})));
}

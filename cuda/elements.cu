#include "vector.h"

enum { THREADS = 256, EACH = 8 };

/* EACH elements of any type: one or two pieces. */
template <typename T> __device__ inline void load_each(float (&v)[EACH], const T *p, int64_t count, bool whole)
{
	constexpr int W = WIDTH<T>;
#pragma unroll
	for (int i = 0; i < EACH; i += W) {
		float part[W];
		load(part, p + i, count - i, whole);
#pragma unroll
		for (int j = 0; j < W; j++)
			v[i + j] = part[j];
	}
}

template <typename T> __device__ inline void store_each(T *p, const float (&v)[EACH], int64_t count, bool whole)
{
	constexpr int W = WIDTH<T>;
#pragma unroll
	for (int i = 0; i < EACH; i += W) {
		float part[W];
#pragma unroll
		for (int j = 0; j < W; j++)
			part[j] = v[i + j];
		store(p + i, part, count - i, whole);
	}
}

static unsigned blocks(int64_t count)
{
	return (unsigned)divide_up(count, THREADS * EACH);
}

static bool aligned(std::initializer_list<const void *> pointers)
{
	return rows_are_whole<float>(0, pointers);
}

template <typename T> __global__ void __launch_bounds__(THREADS) add_kernel(T *y, const T *x, int64_t count, bool aligned)
{
	int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH, left = count - i;
	if (left <= 0)
		return;
	bool whole = aligned && left >= EACH;
	float a[EACH], b[EACH];
	load_each(a, x + i, left, whole);
	load_each(b, y + i, left, whole);
#pragma unroll
	for (int j = 0; j < EACH; j++)
		b[j] += a[j];
	store_each(y + i, b, left, whole);
}

void kernel_add(const struct kernel_place *k, const struct op_add *a)
{
	int64_t count = tensor_count(a->y);
	WITH_TYPE(a->y.dtype, LAUNCH((add_kernel<T>), blocks(count), THREADS, 0, k->stream, static_cast<T *>(a->y.data),
				     static_cast<const T *>(a->x.data), count, aligned({a->y.data, a->x.data})));
}

template <typename TO, typename T>
__global__ void __launch_bounds__(THREADS) convert_kernel(TO *to, const T *from, int64_t count, bool aligned)
{
	int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH, left = count - i;
	if (left <= 0)
		return;
	bool whole = aligned && left >= EACH;
	float v[EACH];
	load_each(v, from + i, left, whole);
	store_each(to + i, v, left, whole);
}

__device__ inline double to_double(double x)
{
	return x;
}
template <typename T> __device__ inline double to_double(T x)
{
	return (double)to_float(x);
}

/* With FP64 on one side: to 16 bits by way of FP32. */
template <typename TO, typename T> __global__ void __launch_bounds__(THREADS) convert_double_kernel(TO *to, const T *from, int64_t count)
{
	int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= count)
		return;
	double v = to_double(from[i]);
	if constexpr (sizeof(TO) == sizeof v)
		to[i] = v;
	else
		to[i] = from_float<TO>((float)v);
}

static unsigned singles(int64_t count)
{
	return (unsigned)divide_up(count, THREADS);
}

template <typename TO> static void convert(const struct kernel_place *k, const struct op_convert *a)
{
	int64_t count = tensor_count(a->to);
	if (a->from.dtype == F64) {
		LAUNCH((convert_double_kernel<TO, double>), singles(count), THREADS, 0, k->stream, static_cast<TO *>(a->to.data),
		       static_cast<const double *>(a->from.data), count);
		return;
	}
	WITH_TYPE(a->from.dtype,
		  LAUNCH((convert_kernel<TO, T>), blocks(count), THREADS, 0, k->stream, static_cast<TO *>(a->to.data),
			 static_cast<const T *>(a->from.data), count, aligned({a->to.data, a->from.data})));
}

void kernel_convert(const struct kernel_place *k, const struct op_convert *a)
{
	if (a->to.dtype != F64) {
		WITH_TYPE(a->to.dtype, convert<T>(k, a));
		return;
	}
	int64_t count = tensor_count(a->to);
	double *to = static_cast<double *>(a->to.data);
	if (a->from.dtype == F64)
		LAUNCH((convert_double_kernel<double, double>), singles(count), THREADS, 0, k->stream, to,
		       static_cast<const double *>(a->from.data), count);
	else
		WITH_TYPE(a->from.dtype, LAUNCH((convert_double_kernel<double, T>), singles(count), THREADS, 0, k->stream, to,
						static_cast<const T *>(a->from.data), count));
}

/* Where the copied heads of a KV group are: the first element, and elements from a group to the next. */
struct heads_place {
	int64_t first, group;
};

/* A thread takes EACH elements of the `count` that are copied in each of the groups. */
template <typename TO, typename T>
__global__ void __launch_bounds__(THREADS)
	heads_copy_kernel(TO *to, const T *from, heads_place there, heads_place here, int64_t groups, int64_t count, bool whole)
{
	int64_t pieces = (count + EACH - 1) / EACH, i = (int64_t)blockIdx.x * THREADS + threadIdx.x, g = i / pieces;
	if (g >= groups)
		return;
	int64_t c = i % pieces * EACH, left = count - c;
	float v[EACH];
	load_each(v, from + g * here.group + here.first + c, left, whole);
	store_each(to + g * there.group + there.first + c, v, left, whole);
}

template <typename TO> static void heads_copy(const struct kernel_place *k, const struct op_heads_copy *a)
{
	int64_t D = a->to.shape[3], groups = a->to.shape[0] * a->to.shape[1], count = a->count * D;
	heads_place there = {a->to_first * D, a->to.shape[2] * D}, here = {a->from_first * D, a->from.shape[2] * D};
	bool whole = D % EACH == 0 && aligned({a->to.data, a->from.data});
	WITH_TYPE(a->from.dtype,
		  LAUNCH((heads_copy_kernel<TO, T>), (unsigned)divide_up(groups * divide_up(count, EACH), THREADS), THREADS, 0,
			 k->stream, static_cast<TO *>(a->to.data), static_cast<const T *>(a->from.data), there, here, groups, count,
			 whole));
}

void kernel_heads_copy(const struct kernel_place *k, const struct op_heads_copy *a)
{
	WITH_TYPE(a->to.dtype, heads_copy<T>(k, a));
}

__device__ inline float gelu(float x, bool erf_form)
{
	if (erf_form)
		return 0.5f * x * (1.0f + erff(x * 0.70710678f));
	return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

__device__ inline float gelu_slope(float x, bool erf_form)
{
	if (erf_form)
		return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
	float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
	return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.79788456f * (1.0f + 3.0f * 0.044715f * x * x);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) gelu_forward_kernel(T *out, const T *x, int64_t count, bool aligned, bool erf_form)
{
	int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH, left = count - i;
	if (left <= 0)
		return;
	bool whole = aligned && left >= EACH;
	float v[EACH];
	load_each(v, x + i, left, whole);
#pragma unroll
	for (int j = 0; j < EACH; j++)
		v[j] = gelu(v[j], erf_form);
	store_each(out + i, v, left, whole);
}

void kernel_gelu_forward(const struct kernel_place *k, const struct op_gelu_forward *a)
{
	int64_t count = tensor_count(a->out);
	WITH_TYPE(a->out.dtype, LAUNCH((gelu_forward_kernel<T>), blocks(count), THREADS, 0, k->stream,
				       static_cast<T *>(a->out.data), static_cast<const T *>(a->x.data), count,
				       aligned({a->out.data, a->x.data}), a->gelu == GELU_ERF));
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	gelu_backward_kernel(T *dx, const float *product, const T *aux, int64_t count, bool aligned, bool erf_form)
{
	int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH, left = count - i;
	if (left <= 0)
		return;
	bool whole = aligned && left >= EACH;
	float d[EACH], x[EACH];
	load_each(d, product + i, left, whole);
	load_each(x, aux + i, left, whole);
#pragma unroll
	for (int j = 0; j < EACH; j++)
		d[j] *= gelu_slope(x[j], erf_form);
	store_each(dx + i, d, left, whole);
}

void kernel_gelu_backward(const struct kernel_place *k, struct tensor dx, const float *product, struct tensor aux,
			  enum gelu_kind kind)
{
	int64_t count = tensor_count(dx);
	WITH_TYPE(dx.dtype, LAUNCH((gelu_backward_kernel<T>), blocks(count), THREADS, 0, k->stream, static_cast<T *>(dx.data),
				   product, static_cast<const T *>(aux.data), count, aligned({dx.data, product, aux.data}),
				   kind == GELU_ERF));
}

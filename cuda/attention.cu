#include "attention.h"

enum { WARPS = 8 };

static attention_shape shape_of(const struct kernel_place *k, struct tensor qkv, int64_t T, double scale,
				const struct dropout *d, int64_t first_head)
{
	attention_shape s;
	check(T < 1 << 30 && tensor_count(qkv) / qkv.shape[0] < 1 << 30);
	s.T = (int)T;
	s.KV = (int)qkv.shape[1];
	s.G = (int)qkv.shape[2] - 2;
	s.D = (int)qkv.shape[3];
	s.H = s.KV * s.G;
	s.batch = (int)(qkv.shape[0] / T);
	s.first_head = first_head;
	s.scale = (float)scale;
	s.slope = s.scale * LOG2_E;
	s.dropout = drop_of(d, k->scalars);
	return s;
}

void kernel_attention_forward(const struct kernel_place *k, const struct op_attention_forward *a)
{
	attention_shape s = shape_of(k, a->qkv, a->sequence, a->scale, &a->dropout, a->first_head);
	bool aligned = rows_are_whole<float>(0, {a->qkv.data, a->out.data});
	if (aligned && attention_has_tensor_cores(a->qkv.dtype, s))
		attention_forward_tensor(k, a, s);
	else
		attention_forward_simple(k, a, s);
}

/* delta_t = dout_t·out_t, a warp each. */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32) delta_kernel(float *delta, const T *dout, const T *out, const attention_shape s)
{
	int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; /* of [B·T, H] */
	if (i >= (int64_t)s.batch * s.T * s.H)
		return;
	float sum = 0;
	bool whole = ((uintptr_t)dout | (uintptr_t)out) % 16 == 0 && s.D % WIDTH<T> == 0;
	for (int64_t c = threadIdx.x % 32 * WIDTH<T>; c < s.D; c += 32 * WIDTH<T>) {
		float x[WIDTH<T>], y[WIDTH<T>];
		load(x, dout + i * s.D + c, s.D - c, whole);
		load(y, out + i * s.D + c, s.D - c, whole);
#pragma unroll
		for (int e = 0; e < WIDTH<T>; e++)
			sum += x[e] * y[e];
	}
	sum = warp_sum(sum);
	int64_t n = i / s.H, h = i % s.H, b = n / s.T, t = n % s.T;
	if (threadIdx.x % 32 == 0)
		delta[(b * s.H + h) * s.T + t] = sum;
}

void kernel_attention_backward(const struct kernel_place *k, const struct op_attention_backward *a)
{
	attention_shape s = shape_of(k, a->qkv, a->sequence, a->scale, &a->dropout, a->first_head);
	bool aligned = rows_are_whole<float>(0, {a->qkv.data, a->dqkv.data, a->dout.data});
	WITH_TYPE(a->qkv.dtype,
		  LAUNCH((delta_kernel<T>), (unsigned)divide_up((int64_t)s.batch * s.T * s.H, WARPS), WARPS * 32, 0, k->stream,
			 static_cast<float *>(a->delta.data), static_cast<const T *>(a->dout.data),
			 static_cast<const T *>(a->out.data), s));
	if (aligned && attention_has_tensor_cores(a->qkv.dtype, s))
		attention_backward_tensor(k, a, s);
	else
		attention_backward_simple(k, a, s);
}

#include "attention.h"

enum { WARPS = 8 };

static attention_shape shape_of(const struct kernel_place *k, struct tensor qkv, int64_t T, double scale,
				const struct dropout *d, int64_t first_head, struct tensor slopes)
{
	attention_shape s = {};
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
	s.whole_draws = T % 4 == 0;
	s.slopes = static_cast<const float *>(slopes.data);
	return s;
}

static attention_shape part_shape_of(const struct kernel_place *k, struct tensor qkv, const struct span *keys, double scale,
				     const struct dropout *d, int64_t first_head, struct tensor slopes)
{
	attention_shape s = shape_of(k, qkv, keys->length, scale, d, first_head, slopes);
	s.keys = *keys;
	s.whole_draws = (keys->sequence | keys->first | keys->jump) % 4 == 0 && (keys->jump == 0 || keys->length % 8 == 0);
	return s;
}

static void forward(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s)
{
	bool aligned = rows_are_whole<float>(0, {a.qkv, a.kv, a.out});
	if (aligned && attention_has_tensor_cores(a.type, s))
		attention_forward_tensor(k, a, s);
	else
		attention_forward_simple(k, a, s);
}

void kernel_attention_forward(const struct kernel_place *k, const struct op_attention_forward *a)
{
	attention_forward_args args = {a->out.data, static_cast<float *>(a->lse.data), a->qkv.data, a->qkv.data, a->qkv.dtype, false};
	forward(k, args, shape_of(k, a->qkv, a->sequence, a->scale, &a->dropout, a->first_head, a->slopes));
}

void kernel_attention_part_forward(const struct kernel_place *k, const struct op_attention_part_forward *a)
{
	attention_forward_args args = {a->sum.data, static_cast<float *>(a->lse.data), a->qkv.data, a->kv.data, a->qkv.dtype, true};
	attention_shape s = part_shape_of(k, a->qkv, &a->keys, a->scale, &a->dropout, a->first_head, a->slopes);
	s.fresh = a->fresh;
	forward(k, args, s);
}

/* delta_t = dout_t·out_t, a warp each. */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32) delta_kernel(float *delta, const T *dout, const T *out, int64_t rows, int H, int D, int64_t T_)
{
	int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; /* of [B·T, H] */
	if (i >= rows * H)
		return;
	float sum = 0;
	bool whole = ((uintptr_t)dout | (uintptr_t)out) % 16 == 0 && D % WIDTH<T> == 0;
	for (int64_t c = threadIdx.x % 32 * WIDTH<T>; c < D; c += 32 * WIDTH<T>) {
		float x[WIDTH<T>], y[WIDTH<T>];
		load(x, dout + i * D + c, D - c, whole);
		load(y, out + i * D + c, D - c, whole);
#pragma unroll
		for (int e = 0; e < WIDTH<T>; e++)
			sum += x[e] * y[e];
	}
	sum = warp_sum(sum);
	int64_t n = i / H, h = i % H, b = n / T_, t = n % T_;
	if (threadIdx.x % 32 == 0)
		delta[(b * H + h) * T_ + t] = sum;
}

void kernel_attention_delta(const struct kernel_place *k, const struct op_attention_delta *a)
{
	int64_t rows = a->out.shape[0], H = a->out.shape[1];
	WITH_TYPE(a->out.dtype,
		  LAUNCH((delta_kernel<T>), (unsigned)divide_up(rows * H, WARPS), WARPS * 32, 0, k->stream,
			 static_cast<float *>(a->delta.data), static_cast<const T *>(a->dout.data),
			 static_cast<const T *>(a->out.data), rows, (int)H, (int)a->out.shape[2], a->delta.shape[2]));
}

static void backward(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s)
{
	bool aligned = rows_are_whole<float>(0, {a.qkv, a.kv, a.dout, a.dqkv, a.dq, a.dkv});
	if (aligned && attention_has_tensor_cores(a.type, s))
		attention_backward_tensor(k, a, s);
	else
		attention_backward_simple(k, a, s);
}

void kernel_attention_backward(const struct kernel_place *k, const struct op_attention_backward *a)
{
	attention_backward_args args = {a->dqkv.data, NULL, NULL, a->dout.data, a->qkv.data, a->qkv.data,
					static_cast<const float *>(a->lse.data), static_cast<const float *>(a->delta.data),
					a->qkv.dtype, false};
	struct op_attention_delta delta = {};
	delta.delta = a->delta;
	delta.dout = a->dout;
	delta.out = a->out;
	kernel_attention_delta(k, &delta);
	backward(k, args, shape_of(k, a->qkv, a->sequence, a->scale, &a->dropout, a->first_head, a->slopes));
}

void kernel_attention_part_backward(const struct kernel_place *k, const struct op_attention_part_backward *a)
{
	attention_backward_args args = {NULL, static_cast<float *>(a->dq.data), static_cast<float *>(a->dkv.data), a->dout.data,
					a->qkv.data, a->kv.data, static_cast<const float *>(a->lse.data),
					static_cast<const float *>(a->delta.data), a->qkv.dtype, true};
	backward(k, args, part_shape_of(k, a->qkv, &a->keys, a->scale, &a->dropout, a->first_head, a->slopes));
}

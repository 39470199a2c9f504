/* Attention for any head size up to HEAD_MOST and any type, in FP32 arithmetic: one warp for a query (or a key), its
 * lanes on 32 keys (queries) for the scores and on the head's elements for the sums. */
#include "attention.h"

enum { WARPS = 4, HEAD_MOST = 256, EACH = HEAD_MOST / 32 };

/* One row into shared memory, for the warp that calls. */
template <typename T> __device__ inline void stage(float *to, const T *from, int64_t D)
{
	for (int64_t c = threadIdx.x % 32; c < D; c += 32)
		to[c] = to_float(from[c]);
}

template <typename T> __device__ inline float dot(const float *x, const T *y, int64_t D)
{
	float sum = 0;
	for (int64_t c = 0; c < D; c++)
		sum += x[c] * to_float(y[c]);
	return sum;
}

/* sum[j] += factor·row[lane + 32·j]. */
template <typename T> __device__ inline void add_row(float (&sum)[EACH], float factor, const T *row, int64_t D)
{
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		int64_t c = threadIdx.x % 32 + 32 * j;
		if (c < D)
			sum[j] += factor * to_float(row[c]);
	}
}

template <typename T> __device__ inline void put_row(T *row, const float (&sum)[EACH], float factor, int64_t D)
{
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		int64_t c = threadIdx.x % 32 + 32 * j;
		if (c < D)
			row[c] = from_float<T>(sum[j] * factor);
	}
}

/* 0 or the scale for query t and key u. */
__device__ inline float factor_of(const attention_shape &s, const head_place &p, int64_t t, int64_t u)
{
	return s.dropout.on ? drop_factor(s.dropout, p.sample, p.element + t * s.T + u) : 1.0f;
}

__device__ inline float warp_most(float v)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, lanes));
	return v;
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
	attention_forward_simple_kernel(T *out, float *lse, const T *qkv, const attention_shape s)
{
	shared_array(float, staged, WARPS * HEAD_MOST);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int t = (int)blockIdx.x * WARPS + warp;
	if (t >= s.T)
		return;
	head_place p = place_head(s, (int)blockIdx.y / s.H, (int)blockIdx.y % s.H);
	float *query = staged + warp * HEAD_MOST, sum[EACH], most = -INFINITY, total = 0;
#pragma unroll
	for (int j = 0; j < EACH; j++)
		sum[j] = 0;
	stage(query, qkv + p.query + (int64_t)t * p.token, s.D);
	__syncwarp();
	for (int64_t first = 0; first <= t; first += 32) {
		int64_t u = first + lane;
		float score = u <= t ? s.scale * dot(query, qkv + p.key + (int64_t)u * p.token, s.D) : -INFINITY;
		float old = most;
		most = fmaxf(most, warp_most(score));
		float shrink = expf(old - most), e = u <= t ? expf(score - most) : 0.0f;
		total = total * shrink + warp_sum(e);
		e *= u <= t ? factor_of(s, p, t, u) : 0.0f;
#pragma unroll
		for (int j = 0; j < EACH; j++)
			sum[j] *= shrink;
		for (int i = 0; i < 32; i++) {
			float factor = __shfl_sync(FULL_WARP, e, i);
			if (first + i <= t)
				add_row(sum, factor, qkv + p.value + (first + i) * p.token, s.D);
		}
	}
	put_row(out + p.out + (int64_t)t * p.out_token, sum, 1.0f / total, s.D);
	if (lane == 0)
		lse[p.row + t] = most + logf(total);
}

template <typename T>
static void forward(const struct kernel_place *k, const struct op_attention_forward *a, const attention_shape &s)
{
	dim3 grid((unsigned)divide_up(s.T, WARPS), (unsigned)(s.batch * s.H));
	LAUNCH((attention_forward_simple_kernel<T>), grid, WARPS * 32, 0, k->stream, static_cast<T *>(a->out.data),
	       static_cast<float *>(a->lse.data), static_cast<const T *>(a->qkv.data), s);
}

void attention_forward_simple(const struct kernel_place *k, const struct op_attention_forward *a, const attention_shape &s)
{
	check(s.D <= HEAD_MOST);
	WITH_TYPE(a->qkv.dtype, forward<T>(k, a, s));
}

template <typename T> struct backward_args {
	T *dqkv;
	const T *dout, *qkv;
	const float *lse, *delta;
};

struct score_pair {
	float kept, ds; /* p'_tu and ds_tu */
};

/* Query t against key u from their dot products q·k and dout·v. */
__device__ inline score_pair pair_of(const attention_shape &s, const head_place &p, int64_t t, int64_t u, float qk, float dv,
				     const float *lse, const float *delta)
{
	float prob = expf(s.scale * qk - lse[p.row + t]), factor = factor_of(s, p, t, u);
	return {prob * factor, prob * (dv * factor - delta[p.row + t])};
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32) attention_dq_simple_kernel(const backward_args<T> a, const attention_shape s)
{
	shared_array(float, staged, WARPS * 2 * HEAD_MOST);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int t = (int)blockIdx.x * WARPS + warp;
	if (t >= s.T)
		return;
	head_place p = place_head(s, (int)blockIdx.y / s.H, (int)blockIdx.y % s.H);
	float *query = staged + warp * 2 * HEAD_MOST, *dout = query + HEAD_MOST, sum[EACH];
#pragma unroll
	for (int j = 0; j < EACH; j++)
		sum[j] = 0;
	stage(query, a.qkv + p.query + (int64_t)t * p.token, s.D);
	stage(dout, a.dout + p.out + (int64_t)t * p.out_token, s.D);
	__syncwarp();
	for (int64_t first = 0; first <= t; first += 32) {
		int64_t u = first + lane;
		float ds = 0;
		if (u <= t) {
			float qk = dot(query, a.qkv + p.key + (int64_t)u * p.token, s.D);
			float dv = dot(dout, a.qkv + p.value + (int64_t)u * p.token, s.D);
			ds = pair_of(s, p, t, u, qk, dv, a.lse, a.delta).ds;
		}
		for (int i = 0; i < 32; i++) {
			float factor = __shfl_sync(FULL_WARP, ds, i);
			if (first + i <= t)
				add_row(sum, factor, a.qkv + p.key + (first + i) * p.token, s.D);
		}
	}
	put_row(a.dqkv + p.query + (int64_t)t * p.token, sum, s.scale, s.D);
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32, 4) attention_dkv_simple_kernel(const backward_args<T> a, const attention_shape s)
{
	shared_array(float, staged, WARPS * 2 * HEAD_MOST);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int u = (int)blockIdx.x * WARPS + warp, b = (int)blockIdx.y / s.KV, g = (int)blockIdx.y % s.KV;
	if (u >= s.T)
		return;
	head_place p = place_head(s, b, g * s.G);
	float *key = staged + warp * 2 * HEAD_MOST, *value = key + HEAD_MOST, dk[EACH], dv[EACH];
#pragma unroll
	for (int j = 0; j < EACH; j++)
		dk[j] = dv[j] = 0;
	stage(key, a.qkv + p.key + (int64_t)u * p.token, s.D);
	stage(value, a.qkv + p.value + (int64_t)u * p.token, s.D);
	__syncwarp();
	for (int h = g * s.G; h < (g + 1) * s.G; h++) {
		p = place_head(s, b, h);
		for (int64_t first = u; first < s.T; first += 32) {
			int64_t t = first + lane;
			score_pair pair = {0, 0};
			if (t < s.T) {
				float qk = dot(key, a.qkv + p.query + (int64_t)t * p.token, s.D);
				float dp = dot(value, a.dout + p.out + (int64_t)t * p.out_token, s.D);
				pair = pair_of(s, p, t, u, qk, dp, a.lse, a.delta);
			}
			for (int i = 0; i < 32; i++) {
				float kept = __shfl_sync(FULL_WARP, pair.kept, i), ds = __shfl_sync(FULL_WARP, pair.ds, i);
				if (first + i < s.T) {
					add_row(dv, kept, a.dout + p.out + (first + i) * p.out_token, s.D);
					add_row(dk, ds, a.qkv + p.query + (first + i) * p.token, s.D);
				}
			}
		}
	}
	put_row(a.dqkv + p.key + (int64_t)u * p.token, dk, s.scale, s.D);
	put_row(a.dqkv + p.value + (int64_t)u * p.token, dv, 1.0f, s.D);
}

template <typename T>
static void backward(const struct kernel_place *k, const struct op_attention_backward *a, const attention_shape &s)
{
	backward_args<T> b = {static_cast<T *>(a->dqkv.data), static_cast<const T *>(a->dout.data),
			      static_cast<const T *>(a->qkv.data), static_cast<const float *>(a->lse.data),
			      static_cast<const float *>(a->delta.data)};
	dim3 keys((unsigned)divide_up(s.T, WARPS), (unsigned)(s.batch * s.KV));
	dim3 queries((unsigned)divide_up(s.T, WARPS), (unsigned)(s.batch * s.H));
	LAUNCH((attention_dkv_simple_kernel<T>), keys, WARPS * 32, 0, k->stream, b, s);
	LAUNCH((attention_dq_simple_kernel<T>), queries, WARPS * 32, 0, k->stream, b, s);
}

void attention_backward_simple(const struct kernel_place *k, const struct op_attention_backward *a, const attention_shape &s)
{
	check(s.D <= HEAD_MOST);
	WITH_TYPE(a->qkv.dtype, backward<T>(k, a, s));
}

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

/* row += sum·factor. */
__device__ inline void add_sums(float *row, const float (&sum)[EACH], float factor, int64_t D)
{
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		int64_t c = threadIdx.x % 32 + 32 * j;
		if (c < D)
			row[c] += sum[j] * factor;
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
template <bool PART> __device__ inline float factor_of(const attention_shape &s, const head_place &p, int64_t t, int64_t u)
{
	return s.dropout.on ? drop_factor(s.dropout, p.sample, mask_at<PART>(s, p, (int)t, (int)u)) : 1.0f;
}

/* q·k with the linear bias in it. */
template <bool PART> __device__ inline float leant(const attention_shape &s, float lean, int64_t t, int64_t u, float qk)
{
	return lean != 0 ? qk + lean * ahead_of<PART>(s, (int)t, (int)u) : qk;
}

__device__ inline float warp_most(float v)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, lanes));
	return v;
}

template <typename T, bool PART>
__global__ void __launch_bounds__(WARPS * 32, 6) /* left to itself the compiler aims at 7 and spills */
	attention_forward_simple_kernel(void *out, float *lse, const T *qkv, const T *kv, const attention_shape s)
{
	shared_array(float, staged, WARPS * HEAD_MOST);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int t = (int)blockIdx.x * WARPS + warp;
	if (t >= s.T)
		return;
	head_place p = place_head<PART>(s, (int)blockIdx.y / s.H, (int)blockIdx.y % s.H);
	float *query = staged + warp * HEAD_MOST, sum[EACH], most = -INFINITY, total = 0;
#pragma unroll
	for (int j = 0; j < EACH; j++)
		sum[j] = 0;
	stage(query, qkv + p.query + (int64_t)t * p.token, s.D);
	__syncwarp();
	int seen = keys_seen<PART>(s, t);
	float lean = lean_of(s, (int)blockIdx.y % s.H);
	for (int64_t first = 0; first < seen; first += 32) {
		int64_t u = first + lane;
		float score = -INFINITY;
		if (u < seen)
			score = s.scale * leant<PART>(s, lean, t, u, dot(query, kv + p.key + (int64_t)u * p.kv_token, s.D));
		float old = most;
		most = fmaxf(most, warp_most(score));
		float shrink = expf(old - most), e = u < seen ? expf(score - most) : 0.0f;
		total = total * shrink + warp_sum(e);
		e *= u < seen ? factor_of<PART>(s, p, t, u) : 0.0f;
#pragma unroll
		for (int j = 0; j < EACH; j++)
			sum[j] *= shrink;
		for (int i = 0; i < 32; i++) {
			float factor = __shfl_sync(FULL_WARP, e, i);
			if (first + i < seen)
				add_row(sum, factor, kv + p.value + (first + i) * p.kv_token, s.D);
		}
	}
	if constexpr (PART) {
		float *row = static_cast<float *>(out) + p.out + (int64_t)t * p.out_token;
		merge m = merge_of(s, lse[p.row + t], most + logf(total));
		__syncwarp(); /* all have read */
		if (seen == 0 && !s.fresh)
			return;
		if (lane == 0)
			lse[p.row + t] = seen == 0 ? -INFINITY : m.lse;
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int64_t c = lane + 32 * j;
			if (c < s.D)
				row[c] = seen == 0 ? 0.0f : merged(s, m, s.fresh ? 0.0f : row[c], sum[j] / total);
		}
	} else {
		put_row(static_cast<T *>(out) + p.out + (int64_t)t * p.out_token, sum, 1.0f / total, s.D);
		if (lane == 0)
			lse[p.row + t] = most + logf(total);
	}
}

template <typename T, bool PART>
static void forward(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s)
{
	dim3 grid((unsigned)divide_up(s.T, WARPS), (unsigned)(s.batch * s.H));
	LAUNCH((attention_forward_simple_kernel<T, PART>), grid, WARPS * 32, 0, k->stream, a.out, a.lse,
	       static_cast<const T *>(a.qkv), static_cast<const T *>(a.kv), s);
}

void attention_forward_simple(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s)
{
	check(s.D <= HEAD_MOST);
	if (a.part)
		WITH_TYPE(a.type, forward<T, true>(k, a, s));
	else
		WITH_TYPE(a.type, forward<T, false>(k, a, s));
}

template <typename T> struct backward_args {
	T *dqkv;
	float *dq, *dkv;
	const T *dout, *qkv, *kv;
	const float *lse, *delta;
};

struct score_pair {
	float kept, ds; /* p'_tu and ds_tu */
};

/* Query t against key u from their dot products q·k, leant, and dout·v. */
template <bool PART>
__device__ inline score_pair pair_of(const attention_shape &s, const head_place &p, int64_t t, int64_t u, float qk, float dv,
				     const float *lse, const float *delta)
{
	float prob = expf(s.scale * qk - lse[p.row + t]), factor = factor_of<PART>(s, p, t, u);
	return {prob * factor, prob * (dv * factor - delta[p.row + t])};
}

template <typename T, bool PART>
__global__ void __launch_bounds__(WARPS * 32) attention_dq_simple_kernel(const backward_args<T> a, const attention_shape s)
{
	shared_array(float, staged, WARPS * 2 * HEAD_MOST);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int t = (int)blockIdx.x * WARPS + warp;
	if (t >= s.T)
		return;
	head_place p = place_head<PART>(s, (int)blockIdx.y / s.H, (int)blockIdx.y % s.H);
	float *query = staged + warp * 2 * HEAD_MOST, *dout = query + HEAD_MOST, sum[EACH];
#pragma unroll
	for (int j = 0; j < EACH; j++)
		sum[j] = 0;
	stage(query, a.qkv + p.query + (int64_t)t * p.token, s.D);
	stage(dout, a.dout + p.out + (int64_t)t * p.out_token, s.D);
	__syncwarp();
	int seen = keys_seen<PART>(s, t);
	float lean = lean_of(s, (int)blockIdx.y % s.H);
	for (int64_t first = 0; first < seen; first += 32) {
		int64_t u = first + lane;
		float ds = 0;
		if (u < seen) {
			float qk = dot(query, a.kv + p.key + (int64_t)u * p.kv_token, s.D);
			float dv = dot(dout, a.kv + p.value + (int64_t)u * p.kv_token, s.D);
			ds = pair_of<PART>(s, p, t, u, leant<PART>(s, lean, t, u, qk), dv, a.lse, a.delta).ds;
		}
		for (int i = 0; i < 32; i++) {
			float factor = __shfl_sync(FULL_WARP, ds, i);
			if (first + i < seen)
				add_row(sum, factor, a.kv + p.key + (first + i) * p.kv_token, s.D);
		}
	}
	if constexpr (PART)
		add_sums(a.dq + p.out + (int64_t)t * p.out_token, sum, s.scale, s.D);
	else
		put_row(a.dqkv + p.query + (int64_t)t * p.token, sum, s.scale, s.D);
}

template <typename T, bool PART>
__global__ void __launch_bounds__(WARPS * 32, 4) attention_dkv_simple_kernel(const backward_args<T> a, const attention_shape s)
{
	shared_array(float, staged, WARPS * 2 * HEAD_MOST);
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	int u = (int)blockIdx.x * WARPS + warp, b = (int)blockIdx.y / s.KV, g = (int)blockIdx.y % s.KV;
	if (u >= s.T)
		return;
	head_place p = place_head<PART>(s, b, g * s.G);
	float *key = staged + warp * 2 * HEAD_MOST, *value = key + HEAD_MOST, dk[EACH], dv[EACH];
#pragma unroll
	for (int j = 0; j < EACH; j++)
		dk[j] = dv[j] = 0;
	stage(key, a.kv + p.key + (int64_t)u * p.kv_token, s.D);
	stage(value, a.kv + p.value + (int64_t)u * p.kv_token, s.D);
	__syncwarp();
	for (int h = g * s.G; h < (g + 1) * s.G; h++) {
		p = place_head<PART>(s, b, h);
		float lean = lean_of(s, h);
		for (int64_t first = first_seeing<PART>(s, u); first < s.T; first += 32) {
			int64_t t = first + lane;
			score_pair pair = {0, 0};
			if (t < s.T) {
				float qk = dot(key, a.qkv + p.query + (int64_t)t * p.token, s.D);
				float dp = dot(value, a.dout + p.out + (int64_t)t * p.out_token, s.D);
				pair = pair_of<PART>(s, p, t, u, leant<PART>(s, lean, t, u, qk), dp, a.lse, a.delta);
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
	if constexpr (PART) {
		add_sums(a.dkv + p.key + (int64_t)u * p.kv_token, dk, s.scale, s.D);
		add_sums(a.dkv + p.value + (int64_t)u * p.kv_token, dv, 1.0f, s.D);
	} else {
		put_row(a.dqkv + p.key + (int64_t)u * p.token, dk, s.scale, s.D);
		put_row(a.dqkv + p.value + (int64_t)u * p.token, dv, 1.0f, s.D);
	}
}

template <typename T, bool PART>
static void backward(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s)
{
	backward_args<T> b = {static_cast<T *>(a.dqkv), a.dq, a.dkv, static_cast<const T *>(a.dout),
			      static_cast<const T *>(a.qkv), static_cast<const T *>(a.kv), a.lse, a.delta};
	dim3 keys((unsigned)divide_up(s.T, WARPS), (unsigned)(s.batch * s.KV));
	dim3 queries((unsigned)divide_up(s.T, WARPS), (unsigned)(s.batch * s.H));
	LAUNCH((attention_dkv_simple_kernel<T, PART>), keys, WARPS * 32, 0, k->stream, b, s);
	LAUNCH((attention_dq_simple_kernel<T, PART>), queries, WARPS * 32, 0, k->stream, b, s);
}

void attention_backward_simple(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s)
{
	check(s.D <= HEAD_MOST);
	if (a.part)
		WITH_TYPE(a.type, backward<T, true>(k, a, s));
	else
		WITH_TYPE(a.type, backward<T, false>(k, a, s));
}

/* Flash attention, backward, in two passes that rebuild the scores from lse: one over blocks of keys for dk and dv,
 * with the products transposed (keys are the rows), so that p and ds go from one product into the next in registers;
 * one over blocks of queries for dq. Seven products in place of five, but no atomics, no FP32 copy of dq and no order
 * that depends on timing. */
#include "tile.h"

/* Tiles of 16 rows a warp, and columns a step: what the registers leave room for. */
template <int D> constexpr int KEY_TILES = D <= 64 ? 2 : 1;
template <int D> constexpr int KEYS = TILE_WARPS * 16 * KEY_TILES<D>;
template <int D> constexpr int SLICE = D <= 64 ? 16 : 32; /* of a step of the pass over keys, at a time */
enum { STEP = 32, QUERY_TILES = 2, QUERIES = TILE_WARPS * 16 * QUERY_TILES };

template <int D> constexpr size_t DKV_SHARED = (2 * KEYS<D> + 4 * STEP) * STRIDE<D> * 2 + 4 * STEP * sizeof(float);
template <int D> constexpr size_t DQ_SHARED = (2 * QUERIES + 4 * STEP) * STRIDE<D> * 2 + 2 * QUERIES * sizeof(float);

template <typename T> struct backward_args {
	T *dqkv;
	float *dq, *dkv;
	const T *dout, *qkv, *kv;
	const float *lse, *delta;
};

/* lse and delta of `rows` queries into shared memory; past the sequence what makes p zero. */
template <int rows>
__device__ inline void load_rows(float *lse, float *delta, const float *lse_from, const float *delta_from, int first,
				 int T)
{
	int i = (int)threadIdx.x;
	if (i >= rows)
		return;
	bool there = first + i < T;
	lse[i] = there ? lse_from[first + i] * LOG2_E : INFINITY;
	delta[i] = there ? delta_from[first + i] : 0.0f;
}

template <typename T, int D, bool PART>
__global__ void __launch_bounds__(TILE_THREADS) attention_dkv_kernel(const backward_args<T> a, const attention_shape s)
{
	constexpr int M = KEY_TILES<D>, N = SLICE<D> / 8, CHUNK = STEP * STRIDE<D>;
	shared_dynamic(T, keys);
	T *values = keys + KEYS<D> * STRIDE<D>, *queries = values + KEYS<D> * STRIDE<D>, *douts = queries + 2 * CHUNK;
	float *lse = reinterpret_cast<float *>(douts + 2 * CHUNK), *delta = lse + 2 * STEP;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, own = warp * 16 * M;
	int first = (int)blockIdx.x * KEYS<D>, b = (int)blockIdx.y / s.KV, g = (int)blockIdx.y % s.KV;
	int start = PART ? first_seeing<PART>(s, first) / STEP * STEP : first; /* queries before it see none of the keys */
	int steps = (s.T - start + STEP - 1) / STEP, all = steps * s.G;
	if (PART && steps <= 0)
		return;
	head_place p = place_head<PART>(s, b, g * s.G);

	float dk[M][D / 8][4], dv[M][D / 8][4];
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < D / 8; n++)
#pragma unroll
			for (int r = 0; r < 4; r++)
				dk[m][n][r] = dv[m][n][r] = 0;

	tile_load<T, D, KEYS<D>>(keys, a.kv + p.key, p.kv_token, first, s.T);
	tile_load<T, D, KEYS<D>>(values, a.kv + p.value, p.kv_token, first, s.T);
	tile_load<T, D, STEP>(queries, a.qkv + p.query, p.token, start, s.T);
	tile_load<T, D, STEP>(douts, a.dout + p.out, p.out_token, start, s.T);
	copy_commit();
	load_rows<STEP>(lse, delta, a.lse + p.row, a.delta + p.row, start, s.T);
	for (int i = 0; i < all; i++) { /* heads of the group, each over its queries */
		copy_wait<0>();
		__syncthreads();
		const T *q = queries + i % 2 * CHUNK, *o = douts + i % 2 * CHUNK;
		const float *l = lse + i % 2 * STEP, *dl = delta + i % 2 * STEP;
		p = place_head<PART>(s, b, g * s.G + i / steps);
		if (i + 1 < all) {
			head_place next = place_head<PART>(s, b, g * s.G + (i + 1) / steps);
			int t = start + (i + 1) % steps * STEP;
			int at = (i + 1) % 2;
			tile_load<T, D, STEP>(queries + at * CHUNK, a.qkv + next.query, next.token, t, s.T);
			tile_load<T, D, STEP>(douts + at * CHUNK, a.dout + next.out, next.out_token, t, s.T);
			copy_commit();
			load_rows<STEP>(lse + at * STEP, delta + at * STEP, a.lse + next.row, a.delta + next.row, t, s.T);
		}
		int t0 = start + i % steps * STEP, u0 = first + own;
		if (keys_seen<PART>(s, t0 + STEP - 1) <= u0)
			continue; /* all queries of the step come before this warp's keys */

#pragma unroll 1
		for (int part = 0; part < STEP; part += SLICE<D>) {
			bool edge = !PART || keys_seen<PART>(s, t0 + part) < u0 + 16 * M; /* else every query sees every key */
			float c[M][N][4], dp[M][N][4]; /* scores, then p', then ds; and what comes back through v */
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int n = 0; n < N; n++)
#pragma unroll
					for (int r = 0; r < 4; r++)
						c[m][n][r] = dp[m][n][r] = 0;
#pragma unroll
			for (int d = 0; d < D; d += 16) {
				add_scores<T, D, M, N>(c, keys, own, q, part, d);
				add_scores<T, D, M, N>(dp, values, own, o, part, d);
			}
			if (s.slopes)
				add_leans<PART, true>(c, s, lean_of(s, g * s.G + i / steps), t0 + part + lane % 4 * 2, u0 + lane / 4);
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int n = 0; n < N; n++) {
					int column = part + 8 * n + lane % 4 * 2;
					int u = u0 + 16 * m + lane / 4;
					uint32_t kept = s.dropout.on ? kept_bits_transposed<PART>(s, p, t0 + column, u) : 15u;
#pragma unroll
					for (int r = 0; r < 4; r++) {
						int t = column + r % 2;
						float x = exp2_fast(c[m][n][r] * s.slope - l[t]);
						x = edge && u + r / 2 * 8 >= keys_seen<PART>(s, t0 + t) ? 0.0f : x;
						float factor = kept >> r & 1 ? 1.0f : 0.0f;
						dp[m][n][r] = x * (dp[m][n][r] * (factor * s.dropout.scale) - dl[t]);
						c[m][n][r] = x * factor;
					}
				}
#pragma unroll
			for (int n = 0; n < N; n += 2) { /* 16 queries */
				uint32_t pa[M][4], sa[M][4];
#pragma unroll
				for (int m = 0; m < M; m++) {
					a_from_c<T>(pa[m], c[m][n], c[m][n + 1]);
					a_from_c<T>(sa[m], dp[m][n], dp[m][n + 1]);
				}
#pragma unroll
				for (int d = 0; d < D / 8; d += 2) {
					uint32_t ob[4], qb[4];
					tile_b<T, D>(ob, o, part + n * 8, d * 8);
					tile_b<T, D>(qb, q, part + n * 8, d * 8);
#pragma unroll
					for (int m = 0; m < M; m++) {
						mma<T>(dv[m][d], pa[m], ob[0], ob[1]);
						mma<T>(dv[m][d + 1], pa[m], ob[2], ob[3]);
						mma<T>(dk[m][d], sa[m], qb[0], qb[1]);
						mma<T>(dk[m][d + 1], sa[m], qb[2], qb[3]);
					}
				}
			}
		}
	}
#pragma unroll
	for (int m = 0; m < M; m++) {
		int row = own + 16 * m;
		if constexpr (PART) {
			tile_add<D>(a.dkv + p.key, p.kv_token, first + row, s.T, dk[m], s.scale);
			tile_add<D>(a.dkv + p.value, p.kv_token, first + row, s.T, dv[m], s.dropout.scale);
		} else {
			tile_store<T, D>(a.dqkv + p.key, p.token, first + row, s.T, keys, row, dk[m], s.scale, s.scale);
			tile_store<T, D>(a.dqkv + p.value, p.token, first + row, s.T, values, row, dv[m], s.dropout.scale,
					 s.dropout.scale);
		}
	}
}

template <typename T, int D, bool PART>
__global__ void __launch_bounds__(TILE_THREADS) attention_dq_kernel(const backward_args<T> a, const attention_shape s)
{
	constexpr int M = QUERY_TILES, N = STEP / 8, CHUNK = STEP * STRIDE<D>, BACK = D <= 96 ? N : 2;
	shared_dynamic(T, queries);
	T *douts = queries + QUERIES * STRIDE<D>, *keys = douts + QUERIES * STRIDE<D>, *values = keys + 2 * CHUNK;
	float *lse = reinterpret_cast<float *>(values + 2 * CHUNK), *delta = lse + QUERIES;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, own = warp * 16 * M;
	int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
	int head = (int)blockIdx.y;
	head_place p = place_head<PART>(s, head / s.H, head % s.H);
	int last = keys_seen<PART>(s, (first + QUERIES < s.T ? first + QUERIES : s.T) - 1);
	int steps = (last + STEP - 1) / STEP;
	if (PART && steps == 0)
		return;
	float dq[M][D / 8][4];
#pragma unroll
	for (int m = 0; m < M; m++) {
#pragma unroll
		for (int n = 0; n < D / 8; n++)
			dq[m][n][0] = dq[m][n][1] = dq[m][n][2] = dq[m][n][3] = 0;
	}
	load_rows<QUERIES>(lse, delta, a.lse + p.row, a.delta + p.row, first, s.T);
	const T *key_from = a.kv + p.key, *value_from = key_from + D;
	tile_load<T, D, QUERIES>(queries, a.qkv + p.query, p.token, first, s.T);
	tile_load<T, D, QUERIES>(douts, a.dout + p.out, p.out_token, first, s.T);
	tile_load<T, D, STEP>(keys, key_from, p.kv_token, 0, s.T);
	tile_load<T, D, STEP>(values, value_from, p.kv_token, 0, s.T);
	copy_commit();
	for (int step = 0; step < steps; step++) {
		copy_wait<0>();
		__syncthreads();
		const T *k = keys + step % 2 * CHUNK, *v = values + step % 2 * CHUNK;
		if (step + 1 < steps) {
			int at = (step + 1) % 2;
			tile_load<T, D, STEP>(keys + at * CHUNK, key_from, p.kv_token, (step + 1) * STEP, s.T);
			tile_load<T, D, STEP>(values + at * CHUNK, value_from, p.kv_token, (step + 1) * STEP, s.T);
			copy_commit();
		}
		int u0 = step * STEP, t0 = first + own;
		if (u0 >= keys_seen<PART>(s, t0 + 16 * M - 1))
			continue;
		bool edge = !PART || keys_seen<PART>(s, t0) < u0 + STEP;

		float c[M][N][4]; /* scores, then ds */
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int n = 0; n < N; n++)
				c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
#pragma unroll
		for (int d = 0; d < D; d += 16)
			add_scores<T, D, M, N>(c, queries, own, k, 0, d);
		if (s.slopes)
			add_leans<PART, false>(c, s, lean_of(s, head % s.H), t0 + lane / 4, u0 + lane % 4 * 2);
#pragma unroll
		for (int part = 0; part < N; part += BACK) {
			float dp[M][BACK][4]; /* what comes back through v */
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int n = 0; n < BACK; n++)
					dp[m][n][0] = dp[m][n][1] = dp[m][n][2] = dp[m][n][3] = 0;
#pragma unroll
			for (int d = 0; d < D; d += 16)
				add_scores<T, D, M, BACK>(dp, douts, own, v, part * 8, d);
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int n = 0; n < BACK; n++) {
					int row = 16 * m + lane / 4, t = t0 + row, u = u0 + 8 * (part + n) + lane % 4 * 2;
					uint32_t kept = s.dropout.on ? kept_bits<PART>(s, p, t, u) : 15u;
					float(&ds)[4] = c[m][part + n];
#pragma unroll
					for (int r = 0; r < 4; r++) {
						int at = own + row + r / 2 * 8;
						float x = exp2_fast(ds[r] * s.slope - lse[at]);
						x = edge && u + r % 2 >= keys_seen<PART>(s, t + r / 2 * 8) ? 0.0f : x;
						float factor = kept >> r & 1 ? s.dropout.scale : 0.0f;
						ds[r] = x * (dp[m][n][r] * factor - delta[at]);
					}
				}
		}
		add_products<T, D, M, N>(dq, c, k);
	}
	head = forget(head);
	p = place_head<PART>(s, head / s.H, head % s.H);
#pragma unroll
	for (int m = 0; m < M; m++) {
		int row = own + 16 * m;
		if constexpr (PART)
			tile_add<D>(a.dq + p.out, p.out_token, first + row, s.T, dq[m], s.scale);
		else
			tile_store<T, D>(a.dqkv + p.query, p.token, first + row, s.T, queries, row, dq[m], s.scale, s.scale);
	}
}

template <typename T, int D, bool PART>
static void backward(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s)
{
	backward_args<T> b = {static_cast<T *>(a.dqkv), a.dq, a.dkv, static_cast<const T *>(a.dout),
			      static_cast<const T *>(a.qkv), static_cast<const T *>(a.kv), a.lse, a.delta};
	dim3 key_blocks((unsigned)divide_up(s.T, KEYS<D>), (unsigned)(s.batch * s.KV));
	dim3 query_blocks((unsigned)divide_up(s.T, QUERIES), (unsigned)(s.batch * s.H));
	LAUNCH((attention_dkv_kernel<T, D, PART>), key_blocks, TILE_THREADS, DKV_SHARED<D>, k->stream, b, s);
	LAUNCH((attention_dq_kernel<T, D, PART>), query_blocks, TILE_THREADS, DQ_SHARED<D>, k->stream, b, s);
}

void attention_backward_tensor(const struct kernel_place *k, const attention_backward_args &a, const attention_shape &s)
{
	if (a.part)
		WITH_HEAD(a.type, s.D, backward<T, D, true>(k, a, s));
	else
		WITH_HEAD(a.type, s.D, backward<T, D, false>(k, a, s));
}

/* Flash attention, forward (Dao 2023, "FlashAttention-2"): a block takes 128 queries of one head and walks over the keys
 * up to its last query; K and V come in double-buffered asynchronous copies while the step before computes. Scores
 * live in registers only: a running maximum and sum a row, and the output rescaled when the maximum moves. */
#include "tile.h"

enum { TILES = 2, QUERIES = TILE_WARPS * 16 * TILES };

/* Keys a step: what the registers leave room for. */
template <int D> constexpr int KEYS = D <= 64 ? 64 : 32;

template <int D> constexpr size_t FORWARD_SHARED = (QUERIES + 4 * KEYS<D>) * STRIDE<D> * 2;

/* Query t's row of fragments, times factor, and its lse over the keys here join what is in sums and lse. */
template <int D>
__device__ inline void merge_row(float *sums, float *lse, int token, int t, const attention_shape &s, int half,
				 const float (&o)[D / 8][4], float factor, float here)
{
	int lane = (int)threadIdx.x % 32;
	bool there = t < s.T, none = keys_seen<true>(s, t) == 0;
	float before = there ? lse[t] : 0.0f;
	merge m = merge_of(s, before, here);
	__syncwarp(); /* all have read */
	if (!there || (none && !s.fresh))
		return;
	if (lane % 4 == 0)
		lse[t] = none ? -INFINITY : m.lse;
	float *row = sums + (int64_t)t * token + lane % 4 * 2;
#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		float2 old = s.fresh ? make_float2(0.0f, 0.0f) : read_8(row + 8 * n);
		float x = merged(s, m, old.x, o[n][2 * half] * factor), y = merged(s, m, old.y, o[n][2 * half + 1] * factor);
		write_8(row + 8 * n, none ? make_float2(0.0f, 0.0f) : make_float2(x, y));
	}
}

template <typename T, int D, bool PART>
__global__ void __launch_bounds__(TILE_THREADS)
	attention_forward_kernel(void *out, float *lse, const T *qkv, const T *kv, const attention_shape s)
{
	constexpr int BC = KEYS<D>, N = BC / 8, CHUNK = BC * STRIDE<D>;
	shared_dynamic(T, queries);
	T *keys = queries + QUERIES * STRIDE<D>, *values = keys + 2 * CHUNK;
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, own = warp * 16 * TILES;
	int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES; /* the longest first */
	int head = (int)blockIdx.y;
	head_place p = place_head<PART>(s, head / s.H, head % s.H);
	int last = keys_seen<PART>(s, (first + QUERIES < s.T ? first + QUERIES : s.T) - 1); /* keys seen, at most */
	int steps = (last + BC - 1) / BC;

	float o[TILES][D / 8][4], most[TILES][2], total[TILES][2];
#pragma unroll
	for (int m = 0; m < TILES; m++) {
#pragma unroll
		for (int n = 0; n < D / 8; n++)
			o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
		most[m][0] = most[m][1] = -INFINITY;
		total[m][0] = total[m][1] = 0;
	}

	const T *key_from = kv + p.key, *value_from = key_from + D;
	if (!PART || steps > 0) { /* a copy that nobody waits for would write to what is shared by then with another block */
		tile_load<T, D, QUERIES>(queries, qkv + p.query, p.token, first, s.T);
		tile_load<T, D, BC>(keys, key_from, p.kv_token, 0, s.T);
		tile_load<T, D, BC>(values, value_from, p.kv_token, 0, s.T);
		copy_commit();
	}
	for (int step = 0; step < steps; step++) {
		copy_wait<0>();
		__syncthreads();
		const T *k = keys + step % 2 * CHUNK, *v = values + step % 2 * CHUNK;
		if (step + 1 < steps) {
			tile_load<T, D, BC>(keys + (step + 1) % 2 * CHUNK, key_from, p.kv_token, (step + 1) * BC, s.T);
			tile_load<T, D, BC>(values + (step + 1) % 2 * CHUNK, value_from, p.kv_token, (step + 1) * BC, s.T);
			copy_commit();
		}
		int u0 = step * BC, t0 = first + own;
		if (u0 >= keys_seen<PART>(s, t0 + 16 * TILES - 1))
			continue; /* all keys of the step come after this warp's queries */

		float c[TILES][N][4];
#pragma unroll
		for (int m = 0; m < TILES; m++)
#pragma unroll
			for (int n = 0; n < N; n++)
				c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
#pragma unroll
		for (int d = 0; d < D; d += 16)
			add_scores<T, D, TILES, N>(c, queries, own, k, 0, d);
		if (s.slopes)
			add_leans<PART, false>(c, s, lean_of(s, head % s.H), t0 + lane / 4, u0 + lane % 4 * 2);

		bool edge = u0 + BC > keys_seen<PART>(s, t0) || u0 + BC > s.T;
#pragma unroll
		for (int m = 0; m < TILES; m++) {
			int t = t0 + 16 * m + lane / 4;
			if (edge) {
#pragma unroll
				for (int half = 0; half < 2; half++) {
					int seen = keys_seen<PART>(s, t + half * 8);
#pragma unroll
					for (int n = 0; n < N; n++)
#pragma unroll
						for (int r = 2 * half; r < 2 * half + 2; r++) {
							int u = u0 + 8 * n + lane % 4 * 2 + r % 2;
							if (u >= seen || u >= s.T)
								c[m][n][r] = -INFINITY;
						}
				}
			}
			float shrink[2];
#pragma unroll
			for (int half = 0; half < 2; half++) {
				float highest = most[m][half];
#pragma unroll
				for (int n = 0; n < N; n++)
					highest = fmaxf(highest, fmaxf(c[m][n][2 * half], c[m][n][2 * half + 1]));
				highest = fmaxf(highest, __shfl_xor_sync(FULL_WARP, highest, 1));
				highest = fmaxf(highest, __shfl_xor_sync(FULL_WARP, highest, 2));
				float shared = PART && highest == -INFINITY ? 0.0f : highest; /* a part may show a query nothing */
				shrink[half] = exp2_fast((most[m][half] - shared) * s.slope);
				most[m][half] = highest;
				float sum = 0, base = shared * s.slope;
#pragma unroll
				for (int n = 0; n < N; n++)
#pragma unroll
					for (int r = 2 * half; r < 2 * half + 2; r++) {
						c[m][n][r] = exp2_fast(c[m][n][r] * s.slope - base);
						sum += c[m][n][r];
					}
				total[m][half] = total[m][half] * shrink[half] + sum;
			}
			if (__any_sync(FULL_WARP, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
				for (int n = 0; n < D / 8; n++) {
					o[m][n][0] *= shrink[0];
					o[m][n][1] *= shrink[0];
					o[m][n][2] *= shrink[1];
					o[m][n][3] *= shrink[1];
				}
			}
			if (s.dropout.on) {
#pragma unroll
				for (int n = 0; n < N; n++) {
					uint32_t kept = kept_bits<PART>(s, p, t, u0 + 8 * n + lane % 4 * 2);
#pragma unroll
					for (int r = 0; r < 4; r++)
						c[m][n][r] *= kept >> r & 1 ? 1.0f : 0.0f;
				}
			}
		}

		add_products<T, D, TILES, N>(o, c, v);
	}

	head = forget(head);
	p = place_head<PART>(s, head / s.H, head % s.H);
#pragma unroll
	for (int m = 0; m < TILES; m++) {
		float factor[2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float sum = total[m][half];
			sum += __shfl_xor_sync(FULL_WARP, sum, 1);
			sum += __shfl_xor_sync(FULL_WARP, sum, 2);
			factor[half] = s.dropout.scale / sum;
			int t = first + own + 16 * m + 8 * half + lane / 4;
			float here = most[m][half] * s.scale + logf(sum);
			if constexpr (PART)
				merge_row<D>(static_cast<float *>(out) + p.out, lse + p.row, p.out_token, t, s, half, o[m], factor[half],
					     here);
			else if (lane % 4 == 0 && t < s.T)
				lse[p.row + t] = here;
		}
		if constexpr (!PART)
			tile_store<T, D>(static_cast<T *>(out) + p.out, p.out_token, first + own + 16 * m, s.T, queries, own + 16 * m, o[m],
					 factor[0], factor[1]);
	}
}

template <typename T, int D, bool PART>
static void forward(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s)
{
	dim3 grid((unsigned)divide_up(s.T, QUERIES), (unsigned)(s.batch * s.H));
	LAUNCH((attention_forward_kernel<T, D, PART>), grid, TILE_THREADS, FORWARD_SHARED<D>, k->stream, a.out, a.lse,
	       static_cast<const T *>(a.qkv), static_cast<const T *>(a.kv), s);
}

void attention_forward_tensor(const struct kernel_place *k, const attention_forward_args &a, const attention_shape &s)
{
	if (a.part)
		WITH_HEAD(a.type, s.D, forward<T, D, true>(k, a, s));
	else
		WITH_HEAD(a.type, s.D, forward<T, D, false>(k, a, s));
}

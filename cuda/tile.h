/* tile.h: rows of one head in shared memory, and warps' fragments of them, for the tensor-core attention kernels.
 *
 * A tile is rows of D elements with a stride of D + 8: for D = 64, 80, 96, 128 the eight rows of one 8×8 matrix then
 * begin in eight different groups of banks, so ldmatrix never waits. Rows past the sequence are zero.
 * Used by attention_forward.cu and attention_backward.cu. */
#ifndef MTRAIN_CUDA_TILE_H
#define MTRAIN_CUDA_TILE_H

#include "attention.h"
#include "mma.h"

enum { TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * 32 };

template <int D> constexpr int STRIDE = D + 8;

/* Queues copies of `rows` rows from row `first` on; the caller commits and waits. */
template <typename T, int D, int rows>
__device__ inline void tile_load(T *tile, const T *from, int token, int first, int T_)
{
	constexpr int PIECES = D / 8, COPIES = rows * PIECES;
	int thread = forget((int)threadIdx.x); /* addresses are cheaper to form than to keep */
#pragma unroll
	for (int i = 0; i < (COPIES + TILE_THREADS - 1) / TILE_THREADS; i++) {
		int at = i * TILE_THREADS + thread, row = at / PIECES, piece = at % PIECES;
		if (COPIES % TILE_THREADS && at >= COPIES)
			break;
		bool there = first + row < T_;
		copy_async(tile + row * STRIDE<D> + piece * 8, there ? from + (int64_t)(first + row) * token + piece * 8 : from, there);
	}
}

/* A of 16 rows from `row`, 16 columns from `column`. */
template <typename T, int D> __device__ inline void tile_a(uint32_t (&a)[4], const T *tile, int row, int column)
{
	int lane = (int)threadIdx.x % 32;
	load_matrices(a, tile + (row + lane % 16) * STRIDE<D> + column + lane / 16 * 8);
}

/* B of a product with the tile transposed: two fragments (b[0], b[1]), (b[2], b[3]), whose columns are the 16 tile rows
 * from `row`, and whose 16 rows are the tile columns from `column`. */
template <typename T, int D> __device__ inline void tile_b_transposed(uint32_t (&b)[4], const T *tile, int row, int column)
{
	int lane = (int)threadIdx.x % 32;
	load_matrices(b, tile + (row + lane / 16 * 8 + lane % 8) * STRIDE<D> + column + lane / 8 % 2 * 8);
}

/* B of a product with the tile as it is: two fragments, whose rows are the 16 tile rows from `row`, and whose columns
 * are the 16 tile columns from `column`. */
template <typename T, int D> __device__ inline void tile_b(uint32_t (&b)[4], const T *tile, int row, int column)
{
	int lane = (int)threadIdx.x % 32;
	load_matrices_transposed(b, tile + (row + lane % 16) * STRIDE<D> + column + lane / 16 * 8);
}

/* c += rows of one tile, M·16 from `row`, times rows of another, N·8 from `column`, over 16 elements from d. */
template <typename T, int D, int M, int N>
__device__ inline void add_scores(float (&c)[M][N][4], const T *rows, int row, const T *columns, int column, int d)
{
	uint32_t a[M][4];
#pragma unroll
	for (int m = 0; m < M; m++)
		tile_a<T, D>(a[m], rows, row + 16 * m, d);
#pragma unroll
	for (int n = 0; n < N; n += 2) {
		uint32_t b[4];
		tile_b_transposed<T, D>(b, columns, column + n * 8, d);
#pragma unroll
		for (int m = 0; m < M; m++) {
			mma<T>(c[m][n], a[m], b[0], b[1]);
			mma<T>(c[m][n + 1], a[m], b[2], b[3]);
		}
	}
}

/* Linear biases onto products whose fragments' first score has query t and key u: queries are rows, or, transposed, keys are. */
template <bool PART, bool TRANSPOSED, int M, int N>
__device__ inline void add_leans(float (&c)[M][N][4], const attention_shape &s, float lean, int t, int u)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int r = 0; r < 4; r++) {
				int row = 16 * m + r / 2 * 8, column = 8 * n + r % 2;
				c[m][n][r] += lean * ahead_of<PART>(s, t + (TRANSPOSED ? column : row), u + (TRANSPOSED ? row : column));
			}
}

/* The A fragment of 16 columns, rounded to T, from the two neighbouring C fragments of the same rows. */
template <typename T> __device__ inline void a_from_c(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4])
{
	a[0] = pair_from<T>(left[0], left[1]);
	a[1] = pair_from<T>(left[2], left[3]);
	a[2] = pair_from<T>(right[0], right[1]);
	a[3] = pair_from<T>(right[2], right[3]);
}

/* out += C fragments, rounded to T, times the N·8 rows of a tile. */
template <typename T, int D, int M, int N>
__device__ inline void add_products(float (&out)[M][D / 8][4], const float (&c)[M][N][4], const T *rows)
{
#pragma unroll
	for (int n = 0; n < N; n += 2) {
		uint32_t a[M][4];
#pragma unroll
		for (int m = 0; m < M; m++)
			a_from_c<T>(a[m], c[m][n], c[m][n + 1]);
#pragma unroll
		for (int d = 0; d < D / 8; d += 2) {
			uint32_t b[4];
			tile_b<T, D>(b, rows, n * 8, d * 8);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma<T>(out[m][d], a[m], b[0], b[1]);
				mma<T>(out[m][d + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* Stores 16 rows of C fragments times a factor for each half (rows g and g + 8) to rows `first`… of device memory,
 * through 16 tile rows that only this warp uses. */
template <typename T, int D>
__device__ inline void tile_store(T *to, int token, int first, int T_, T *tile, int row,
				  const float (&c)[D / 8][4], float upper, float lower)
{
	constexpr int PIECES = D / 8;
	int lane = (int)threadIdx.x % 32, g = lane / 4, i = lane % 4;
	__syncwarp();
#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		T *at = tile + (row + g) * STRIDE<D> + n * 8 + 2 * i;
		*reinterpret_cast<uint32_t *>(at) = pair_from<T>(c[n][0] * upper, c[n][1] * upper);
		*reinterpret_cast<uint32_t *>(at + 8 * STRIDE<D>) = pair_from<T>(c[n][2] * lower, c[n][3] * lower);
	}
	__syncwarp();
#pragma unroll
	for (int j = 0; j < 16 * PIECES / 32; j++) {
		int at = j * 32 + lane, r = at / PIECES, piece = at % PIECES;
		if (first + r < T_)
			write_16(to + (int64_t)(first + r) * token + piece * 8,
				 read_16(tile + (row + r) * STRIDE<D> + piece * 8));
	}
}

/* Adds 16 rows of C fragments times a factor to rows `first`… of sums in device memory. */
template <int D>
__device__ inline void tile_add(float *to, int token, int first, int T_, const float (&c)[D / 8][4], float factor)
{
	int lane = (int)threadIdx.x % 32;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int t = first + lane / 4 + 8 * half;
		if (t >= T_)
			continue;
		float *row = to + (int64_t)t * token + lane % 4 * 2;
#pragma unroll
		for (int n = 0; n < D / 8; n++) {
			float2 sum = read_8(row + 8 * n);
			write_8(row + 8 * n, make_float2(sum.x + c[n][2 * half] * factor, sum.y + c[n][2 * half + 1] * factor));
		}
	}
}

/* Which of a C fragment's four scores are kept (bit r for c[r]). Queries are rows: c[0], c[1] have query t and keys u, u + 1,
 * c[2], c[3] query t + 8; u is even. Two neighbouring lanes share the draws of both rows. */
template <bool PART>
__device__ inline uint32_t kept_bits(const attention_shape &s, const head_place &p, int t, int u)
{
	const drop &d = s.dropout;
	int64_t upper = mask_at<PART>(s, p, t, u), lower = mask_at<PART>(s, p, t + 8, u);
	uint32_t w[4];
	if (s.whole_draws) {
		bool odd = threadIdx.x % 2;
		struct philox own = rng_dropout(d.seed, (uint64_t)(odd ? lower : upper) / 4, p.sample, d.site);
		uint32_t a = __shfl_xor_sync(FULL_WARP, odd ? own.word[0] : own.word[2], 1);
		uint32_t b = __shfl_xor_sync(FULL_WARP, odd ? own.word[1] : own.word[3], 1);
		w[0] = odd ? a : own.word[0];
		w[1] = odd ? b : own.word[1];
		w[2] = odd ? own.word[2] : a;
		w[3] = odd ? own.word[3] : b;
	} else {
		for (int r = 0; r < 4; r++) {
			int64_t e = mask_at<PART>(s, p, r < 2 ? t : t + 8, u + r % 2);
			w[r] = drop_word(rng_dropout(d.seed, (uint64_t)e / 4, p.sample, d.site), (int)(e % 4));
		}
	}
	uint32_t bits = 0;
#pragma unroll
	for (int r = 0; r < 4; r++)
		bits |= (w[r] >= d.threshold ? 1u : 0u) << r;
	return bits;
}

/* The same where keys are rows: c[0], c[1] have key u and queries t, t + 1, c[2], c[3] key u + 8. The four lanes of four
 * neighbouring keys draw for one of the four scores each and hand the words round. */
template <bool PART>
__device__ inline uint32_t kept_bits_transposed(const attention_shape &s, const head_place &p, int t, int u)
{
	const drop &d = s.dropout;
	uint32_t bits = 0;
	if (s.whole_draws) {
		int lane = (int)threadIdx.x % 32, own = lane / 4 % 4; /* = u % 4 */
		int64_t mine = mask_at<PART>(s, p, t + (own & 1), u + (own & 2) * 4);
		struct philox w = rng_dropout(d.seed, (uint64_t)mine / 4, p.sample, d.site);
#pragma unroll
		for (int turn = 0; turn < 4; turn++) {
			int to = (own + turn) & 3, from = (own - turn) & 3;
			uint32_t word = __shfl_sync(FULL_WARP, drop_word(w, to), lane + (from - own) * 4);
			bits |= (word >= d.threshold ? 1u : 0u) << from;
		}
		return bits;
	}
	for (int r = 0; r < 4; r++) {
		int64_t e = mask_at<PART>(s, p, t + (r & 1), u + (r & 2) * 4);
		bits |= (drop_word(rng_dropout(d.seed, (uint64_t)e / 4, p.sample, d.site), (int)(e % 4)) >= d.threshold ? 1u : 0u)
			<< r;
	}
	return bits;
}

/* Runs the statements with D a head size that tensor-core kernels are made for, and T its type. */
#define WITH_HEAD(type, head, ...)                     \
	do {                                           \
		if ((type) == F16) {                   \
			using T = __half;              \
			WITH_HEAD_SIZE(head, __VA_ARGS__) \
		} else {                               \
			using T = __nv_bfloat16;       \
			WITH_HEAD_SIZE(head, __VA_ARGS__) \
		}                                      \
	} while (0)
#define WITH_HEAD_SIZE(head, ...)             \
	switch (head) {                       \
	case 64: {                            \
		constexpr int D = 64;         \
		__VA_ARGS__;                  \
		break;                        \
	}                                     \
	case 80: {                            \
		constexpr int D = 80;         \
		__VA_ARGS__;                  \
		break;                        \
	}                                     \
	case 96: {                            \
		constexpr int D = 96;         \
		__VA_ARGS__;                  \
		break;                        \
	}                                     \
	default: {                            \
		constexpr int D = 128;        \
		__VA_ARGS__;                  \
	}                                     \
	}

#endif

#include "vector.h"

enum { THREADS = 256 };

/* A block has one token; its threads share the pieces of its heads' first halves. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
	rope_kernel(T *qkv, const float *table, struct span span, int groups, int parts, int size, int half, float sign, bool aligned)
{
	constexpr int W = WIDTH<T>;
	int64_t n = blockIdx.x;
	int pieces = (half + W - 1) / W, turned = parts - 1; /* heads of a group but its value */
	const float *cosines = table + span_token(&span, n) * 2 * half;
	T *token = qkv + n * groups * parts * size;
	for (int at = (int)threadIdx.x; at < groups * turned * pieces; at += THREADS) {
		int i = at % pieces * W, head = at / pieces, left = half - i;
		T *low = token + (int64_t)(head / turned * parts + head % turned) * size + i;
		bool whole = aligned && left >= W;
		float x[W], y[W], c[W], s[W];
		load(x, low, left, whole);
		load(y, low + half, left, whole);
		load_sums(c, cosines + i, left, whole);
		load_sums(s, cosines + half + i, left, whole);
#pragma unroll
		for (int j = 0; j < W; j++) {
			float turn = s[j] * sign, first = x[j];
			x[j] = first * c[j] - y[j] * turn;
			y[j] = y[j] * c[j] + first * turn;
		}
		store(low, x, left, whole);
		store(low + half, y, left, whole);
	}
}

void kernel_rope(const struct kernel_place *k, const struct op_rope *a)
{
	int64_t rows = a->qkv.shape[0], size = a->qkv.shape[3], half = a->table.shape[1] / 2;
	WITH_TYPE(a->qkv.dtype,
		  LAUNCH((rope_kernel<T>), (unsigned)rows, THREADS, 0, k->stream, static_cast<T *>(a->qkv.data),
			 static_cast<const float *>(a->table.data), a->span, (int)a->qkv.shape[1], (int)a->qkv.shape[2], (int)size,
			 (int)half, a->inverse ? -1.0f : 1.0f,
			 rows_are_whole<T>(size, {a->qkv.data, a->table.data}) && half % WIDTH<T> == 0));
}

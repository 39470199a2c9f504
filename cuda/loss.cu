#include "vector.h"

enum { THREADS = 256 };

/* A maximum and Σ exp(v − maximum) joined with another. */
__device__ inline void join(float &most, float &sum, float other_most, float other_sum)
{
	float m = fmaxf(most, other_most);
	if (m == -INFINITY) { /* neither has seen a column that counts; a NaN is in the sum alone */
		sum += other_sum;
		return;
	}
	sum = sum * expf(most - m) + other_sum * expf(other_most - m);
	most = m;
}

/* One block a row, one pass: each thread keeps a running maximum and sum. */
template <typename T>
__global__ void __launch_bounds__(THREADS) loss_stats_kernel(float *stats, const T *logits, const int32_t *targets,
							     int64_t first, int64_t valid, int64_t V, bool whole)
{
	constexpr int W = WIDTH<T>;
	shared_array(float, part, 2 * THREADS / 32);
	const T *row = logits + (int64_t)blockIdx.x * V;
	float most = -INFINITY, sum = 0;
#pragma unroll 4
	for (int64_t c = (int64_t)threadIdx.x * W; c < valid; c += THREADS * W) {
		float v[W], m = most;
		load(v, row + c, V - c, whole);
#pragma unroll
		for (int i = 0; i < W; i++)
			m = c + i < valid ? fmaxf(m, v[i]) : m;
		float s = sum * expf(most - (m == -INFINITY ? 0.0f : m));
#pragma unroll
		for (int i = 0; i < W; i++)
			s += c + i < valid ? expf(v[i] - (m == -INFINITY ? 0.0f : m)) : 0.0f;
		most = m;
		sum = s;
	}
	for (int lanes = 16; lanes > 0; lanes /= 2) {
		float m = __shfl_xor_sync(FULL_WARP, most, lanes), s = __shfl_xor_sync(FULL_WARP, sum, lanes);
		join(most, sum, m, s);
	}
	if (threadIdx.x % 32 == 0) {
		part[threadIdx.x / 32 * 2] = most;
		part[threadIdx.x / 32 * 2 + 1] = sum;
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int w = 1; w < THREADS / 32; w++)
		join(most, sum, part[2 * w], part[2 * w + 1]);
	if (valid > 0 && most == -INFINITY)
		sum = NAN;
	int64_t target = targets[blockIdx.x] - first;
	float *out = stats + (int64_t)blockIdx.x * 3;
	out[0] = most;
	out[1] = sum;
	out[2] = targets[blockIdx.x] >= 0 && target >= 0 && target < valid ? to_float(row[target]) : 0.0f;
}

template <typename T> static void loss_stats(const struct kernel_place *k, const struct op_loss_stats *a)
{
	int64_t N = a->logits.shape[0], V = a->logits.shape[1];
	LAUNCH((loss_stats_kernel<T>), (unsigned)N, THREADS, 0, k->stream, static_cast<float *>(a->stats.data),
	       static_cast<const T *>(a->logits.data), static_cast<const int32_t *>(a->targets.data), a->first, a->valid, V,
	       rows_are_whole<T>(V, {a->logits.data}));
}

void kernel_loss_stats(const struct kernel_place *k, const struct op_loss_stats *a)
{
	WITH_TYPE(a->logits.dtype, loss_stats<T>(k, a));
}

static __global__ void loss_combine_kernel(float *lse, float *losses, const float *stats, const int32_t *targets, int64_t ranks,
				    int64_t N)
{
	int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (n >= N)
		return;
	float most = -INFINITY, sum = 0, target = 0;
	for (int64_t r = 0; r < ranks; r++)
		most = fmaxf(most, stats[(r * N + n) * 3]);
	for (int64_t r = 0; r < ranks; r++) {
		const float *s = stats + (r * N + n) * 3;
		sum += s[1] * expf(s[0] - most);
		target += s[2];
	}
	float l = most + logf(sum);
	lse[n] = l;
	losses[n] = targets[n] >= 0 ? l - target : 0.0f;
}

void kernel_loss_combine(const struct kernel_place *k, const struct op_loss_combine *a)
{
	int64_t N = a->lse.shape[0];
	LAUNCH(loss_combine_kernel, (unsigned)divide_up(N, THREADS), THREADS, 0, k->stream, static_cast<float *>(a->lse.data),
	       static_cast<float *>(a->losses.data), static_cast<const float *>(a->stats.data),
	       static_cast<const int32_t *>(a->targets.data), a->stats.shape[0], N);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	loss_backward_kernel(T *logits, const float *lse, const int32_t *targets, int64_t first, int64_t valid, int64_t V,
			     const struct scalars *scalars, double sequence, bool whole)
{
	constexpr int W = WIDTH<T>;
	int64_t n = blockIdx.x, c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * W;
	if (c >= V)
		return;
	int32_t id = targets[n];
	float scale = id >= 0 ? (float)(scalars->loss_scale / sequence) : 0.0f, l = lse[n], v[W];
	load(v, logits + n * V + c, V - c, whole);
#pragma unroll
	for (int i = 0; i < W; i++) {
		float p = expf(v[i] - l) - (c + i == id - first ? 1.0f : 0.0f);
		v[i] = id >= 0 && c + i < valid ? p * scale : 0.0f;
	}
	store(logits + n * V + c, v, V - c, whole);
}

template <typename T> static void loss_backward(const struct kernel_place *k, const struct op_loss_backward *a)
{
	int64_t N = a->logits.shape[0], V = a->logits.shape[1];
	dim3 grid((unsigned)N, (unsigned)divide_up(V, THREADS * WIDTH<T>));
	LAUNCH((loss_backward_kernel<T>), grid, THREADS, 0, k->stream, static_cast<T *>(a->logits.data),
	       static_cast<const float *>(a->lse.data), static_cast<const int32_t *>(a->targets.data), a->first, a->valid, V,
	       k->scalars, (double)a->sequence, rows_are_whole<T>(V, {a->logits.data}));
}

void kernel_loss_backward(const struct kernel_place *k, const struct op_loss_backward *a)
{
	WITH_TYPE(a->logits.dtype, loss_backward<T>(k, a));
}

/* One block: each thread adds the rows that are its own, then a tree. */
static __global__ void __launch_bounds__(THREADS)
	loss_total_kernel(double *totals, const float *losses, const int32_t *targets, int64_t N)
{
	shared_array(double, sums, 2 * THREADS);
	double loss = 0, count = 0;
	for (int64_t n = threadIdx.x; n < N; n += THREADS) {
		loss += (double)losses[n];
		count += targets[n] >= 0 ? 1 : 0;
	}
	sums[threadIdx.x] = loss;
	sums[THREADS + threadIdx.x] = count;
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.x < half) {
			sums[threadIdx.x] += sums[threadIdx.x + half];
			sums[THREADS + threadIdx.x] += sums[THREADS + threadIdx.x + half];
		}
	}
	if (threadIdx.x == 0) {
		totals[0] += sums[0];
		totals[1] += sums[THREADS];
	}
}

void kernel_loss_total(const struct kernel_place *k, const struct op_loss_total *a)
{
	LAUNCH(loss_total_kernel, 1, THREADS, 0, k->stream, static_cast<double *>(a->totals.data),
	       static_cast<const float *>(a->losses.data), static_cast<const int32_t *>(a->targets.data), a->losses.shape[0]);
}

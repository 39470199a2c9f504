#include "vector.h"

/* Many tensors a launch: their list travels in the kernel's parameters, of which there are 4 KiB. */
enum { THREADS = 256, EACH = 8, ITEMS = 56 };
static constexpr int64_t PARTS_MOST = 256, LEAST_CHUNK = THREADS * EACH * 4;

/* Blocks of item i are those from begin[i] to begin[i + 1]. */
struct blocks_of {
	int begin[ITEMS + 1];
};

__device__ inline int item_of_block(const blocks_of &b, int count)
{
	int item = 0;
	while (item + 1 < count && (int)blockIdx.x >= b.begin[item + 1])
		item++;
	return item;
}

struct sums_items {
	blocks_of blocks;
	int count;
	const float *grad[ITEMS];
	int64_t size[ITEMS];
	int64_t slot[ITEMS];
};

/* Elements that one block adds up: a function of the size alone. */
__host__ __device__ static inline int64_t sums_chunk(int64_t size)
{
	int64_t chunk = (size + PARTS_MOST - 1) / PARTS_MOST;
	chunk = (chunk + EACH - 1) / EACH * EACH;
	return chunk > LEAST_CHUNK ? chunk : LEAST_CHUNK;
}

__device__ inline double warp_sum_double(double v)
{
	for (int lanes = 16; lanes > 0; lanes /= 2)
		v += __shfl_xor_sync(FULL_WARP, v, lanes);
	return v;
}

static __global__ void __launch_bounds__(THREADS) square_sums_kernel(double *partial, const sums_items a)
{
	shared_array(double, part, THREADS / 32);
	int item = item_of_block(a.blocks, a.count);
	int64_t chunk = sums_chunk(a.size[item]), begin = ((int)blockIdx.x - a.blocks.begin[item]) * chunk;
	int64_t end = begin + chunk < a.size[item] ? begin + chunk : a.size[item];
	const float *grad = a.grad[item];
	bool aligned = (uintptr_t)grad % 16 == 0;
	double sum = 0;
#pragma unroll 2
	for (int64_t i = begin + (int64_t)threadIdx.x * EACH; i < end; i += THREADS * EACH) {
		float v[EACH];
		load_sums(v, grad + i, end - i, aligned && end - i >= EACH);
#pragma unroll
		for (int j = 0; j < EACH; j++)
			sum += (double)v[j] * (double)v[j];
	}
	sum = warp_sum_double(sum);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x)
		return;
	sum = 0;
	for (int w = 0; w < THREADS / 32; w++)
		sum += part[w];
	partial[blockIdx.x] = sum;
}

/* One warp an item adds its parts. */
static __global__ void square_sums_finish_kernel(double *sums, const double *partial, const sums_items a)
{
	int item = (int)blockIdx.x;
	double sum = 0;
	for (int p = a.blocks.begin[item] + (int)threadIdx.x; p < a.blocks.begin[item + 1]; p += 32)
		sum += partial[p];
	sum = warp_sum_double(sum);
	if (threadIdx.x == 0)
		sums[a.slot[item]] = sum;
}

void kernel_square_sums(const struct kernel_place *k, const struct op_square_sums *a)
{
	double *partial = static_cast<double *>(k->workspace);
	for (int64_t first = 0; first < a->count; first += ITEMS) {
		sums_items s = {};
		s.count = (int)(a->count - first < ITEMS ? a->count - first : (int64_t)ITEMS);
		for (int i = 0; i < s.count; i++) {
			struct tensor g = a->grads[first + i];
			s.grad[i] = static_cast<const float *>(g.data);
			s.size[i] = tensor_count(g);
			s.slot[i] = a->slots[first + i];
			s.blocks.begin[i + 1] = s.blocks.begin[i] + (int)divide_up(s.size[i], sums_chunk(s.size[i]));
		}
		if (s.blocks.begin[s.count])
			LAUNCH(square_sums_kernel, (unsigned)s.blocks.begin[s.count], THREADS, 0, k->stream, partial, s);
		LAUNCH(square_sums_finish_kernel, (unsigned)s.count, 32, 0, k->stream, static_cast<double *>(a->sums.data),
		       partial, s);
	}
}

enum { VERDICT_SHARED = 4096 };

/* One thread judges; the others bring the sums near, so that it does not wait for memory each time. */
static __global__ void __launch_bounds__(THREADS)
	step_verdict_kernel(struct scalars *scalars, const struct step_rules rules, const double *totals, const double *sums,
			    int64_t count)
{
	shared_array(double, near, VERDICT_SHARED);
	if (count <= VERDICT_SHARED) {
		for (int64_t i = threadIdx.x; i < count; i += THREADS)
			near[i] = sums[i];
		sums = near;
	}
	__syncthreads();
	if (threadIdx.x == 0)
		scalars_verdict(scalars, &rules, totals[0], totals[1], sums, count);
}

void kernel_step_verdict(const struct kernel_place *k, const struct op_step_verdict *a)
{
	LAUNCH(step_verdict_kernel, 1, THREADS, 0, k->stream, k->scalars, a->rules,
	       static_cast<const double *>(a->totals.data), static_cast<const double *>(a->sums.data), tensor_count(a->sums));
}

struct adamw_items {
	blocks_of blocks;
	int count;
	float *master[ITEMS], *m[ITEMS], *v[ITEMS];
	const float *grad[ITEMS];
	void *weight[ITEMS];
	int64_t size[ITEMS];
	bool decay[ITEMS];
};

struct adamw_rules {
	float beta1, beta2, rest1, rest2, epsilon;
};

template <typename T>
__global__ void __launch_bounds__(THREADS)
	adamw_kernel(const struct scalars *scalars, const adamw_rules r, const adamw_items a)
{
	if (scalars->skipped)
		return;
	constexpr int W = WIDTH<T>;
	int item = item_of_block(a.blocks, a.count);
	int64_t i = ((int64_t)((int)blockIdx.x - a.blocks.begin[item]) * THREADS + threadIdx.x) * EACH;
	int64_t left = a.size[item] - i;
	if (left <= 0)
		return;
	float *master = a.master[item] + i, *m_at = a.m[item] + i, *v_at = a.v[item] + i;
	const float *grad = a.grad[item] + i;
	T *weight = static_cast<T *>(a.weight[item]);
	bool whole = left >= EACH && ((uintptr_t)master | (uintptr_t)m_at | (uintptr_t)v_at | (uintptr_t)grad |
				      (uintptr_t)(weight ? weight + i : nullptr)) % 16 == 0;
	float factor = (float)scalars->grad_factor, decay = a.decay[item] ? (float)scalars->decay : 0.0f;
	float rate = (float)(scalars->lr * scalars->correction1), correction = (float)scalars->correction2;
	float p[EACH], m[EACH], v[EACH], g[EACH];
	load_sums(g, grad, left, whole);
	load_sums(m, m_at, left, whole);
	load_sums(v, v_at, left, whole);
	load_sums(p, master, left, whole);
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		float gradient = g[j] * factor;
		m[j] = r.beta1 * m[j] + r.rest1 * gradient;
		v[j] = r.beta2 * v[j] + r.rest2 * gradient * gradient;
		p[j] -= rate * m[j] / (sqrtf(v[j] * correction) + r.epsilon) + decay * p[j];
	}
	store_sums(m_at, m, left, whole);
	store_sums(v_at, v, left, whole);
	store_sums(master, p, left, whole);
	if (!weight)
		return;
#pragma unroll
	for (int j = 0; j < EACH; j += W) {
		float w[W];
#pragma unroll
		for (int e = 0; e < W; e++)
			w[e] = p[j + e];
		store(weight + i + j, w, left - j, whole);
	}
}

void kernel_adamw(const struct kernel_place *k, const struct op_adamw *a)
{
	adamw_rules r = {(float)a->rules.beta1, (float)a->rules.beta2, (float)(1.0 - a->rules.beta1),
			 (float)(1.0 - a->rules.beta2), (float)a->rules.epsilon};
	enum dtype type = F32;
	for (int64_t i = 0; i < a->count; i++) {
		if (tensor_given(a->items[i].weight))
			type = a->items[i].weight.dtype;
	}
	for (int64_t first = 0; first < a->count; first += ITEMS) {
		adamw_items s = {};
		s.count = (int)(a->count - first < ITEMS ? a->count - first : (int64_t)ITEMS);
		for (int i = 0; i < s.count; i++) {
			const struct adamw_item *item = a->items + first + i;
			check(!tensor_given(item->weight) || item->weight.dtype == type);
			s.master[i] = static_cast<float *>(item->master.data);
			s.m[i] = static_cast<float *>(item->m.data);
			s.v[i] = static_cast<float *>(item->v.data);
			s.grad[i] = static_cast<const float *>(item->grad.data);
			s.weight[i] = item->weight.data;
			s.size[i] = tensor_count(item->master);
			s.decay[i] = item->decay;
			s.blocks.begin[i + 1] = s.blocks.begin[i] + (int)divide_up(s.size[i], THREADS * EACH);
		}
		if (s.blocks.begin[s.count] == 0)
			continue;
		WITH_TYPE(type, LAUNCH((adamw_kernel<T>), (unsigned)s.blocks.begin[s.count], THREADS, 0, k->stream, k->scalars,
				       r, s));
	}
}

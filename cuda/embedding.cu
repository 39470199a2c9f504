#include "dropout.h"
#include "vector.h"

enum { THREADS = 128, AHEAD = 4 };

template <typename T>
__global__ void embedding_forward_kernel(T *out, const int32_t *tokens, const T *table, int64_t first, int64_t rows,
					 int64_t C, bool whole)
{
	constexpr int W = WIDTH<T>;
	int64_t n = blockIdx.x, c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * W;
	if (c >= C)
		return;
	int64_t row = tokens[n] - first;
	float v[W];
#pragma unroll
	for (int i = 0; i < W; i++)
		v[i] = 0;
	if (row >= 0 && row < rows)
		load(v, table + row * C + c, C - c, whole);
	store(out + n * C + c, v, C - c, whole);
}

static dim3 row_grid(int64_t rows, int64_t C, int width)
{
	return dim3((unsigned)rows, (unsigned)divide_up(C, (int64_t)THREADS * width));
}

template <typename T> static void embedding_forward(const struct kernel_place *k, const struct op_embedding_forward *a)
{
	int64_t N = a->out.shape[0], C = a->out.shape[1];
	bool whole = rows_are_whole<T>(C, {a->out.data, a->table.data});
	LAUNCH((embedding_forward_kernel<T>), row_grid(N, C, WIDTH<T>), THREADS, 0, k->stream, static_cast<T *>(a->out.data),
	       static_cast<const int32_t *>(a->tokens.data), static_cast<const T *>(a->table.data), a->first,
	       a->table.shape[0], C, whole);
}

void kernel_embedding_forward(const struct kernel_place *k, const struct op_embedding_forward *a)
{
	WITH_TYPE(a->out.dtype, embedding_forward<T>(k, a));
}

/* Block i works only where position i of the order begins a run of equal tokens; it walks the run in ascending rows,
 * AHEAD loads at a time, so each table row is read and written once. */
template <typename T>
__global__ void embedding_backward_kernel(float *dtable, const T *dout, const int32_t *tokens, const int32_t *order,
					  int64_t first, int64_t rows, int64_t N, int64_t C, bool whole)
{
	constexpr int W = WIDTH<T>;
	int64_t i = blockIdx.x, c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * W;
	int32_t token = tokens[order[i]];
	int64_t row = token - first;
	if (c >= C || row < 0 || row >= rows || (i > 0 && tokens[order[i - 1]] == token))
		return;
	float sum[W];
	load_sums(sum, dtable + row * C + c, C - c, whole);
	while (i < N) {
		float v[AHEAD][W];
		int found = 0;
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			if (found == j && i + j < N && tokens[order[i + j]] == token) {
				load(v[j], dout + order[i + j] * C + c, C - c, whole);
				found++;
			}
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			if (j < found) {
#pragma unroll
				for (int e = 0; e < W; e++)
					sum[e] += v[j][e];
			}
		}
		if (found < AHEAD)
			break;
		i += AHEAD;
	}
	store_sums(dtable + row * C + c, sum, C - c, whole);
}

template <typename T> static void embedding_backward(const struct kernel_place *k, const struct op_embedding_backward *a)
{
	int64_t N = a->dout.shape[0], C = a->dout.shape[1];
	bool whole = rows_are_whole<T>(C, {a->dtable.data, a->dout.data});
	LAUNCH((embedding_backward_kernel<T>), row_grid(N, C, WIDTH<T>), THREADS, 0, k->stream,
	       static_cast<float *>(a->dtable.data), static_cast<const T *>(a->dout.data),
	       static_cast<const int32_t *>(a->tokens.data), static_cast<const int32_t *>(a->order.data), a->first,
	       a->dtable.shape[0], N, C, whole);
}

void kernel_embedding_backward(const struct kernel_place *k, const struct op_embedding_backward *a)
{
	WITH_TYPE(a->dout.dtype, embedding_backward<T>(k, a));
}

template <typename T> __global__ void position_forward_kernel(T *out, const T *x, const T *table, drop d, int64_t C, bool whole)
{
	constexpr int W = WIDTH<T>;
	int64_t n = blockIdx.x, c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * W;
	if (c >= C)
		return;
	float v[W], p[W];
	load(v, x + n * C + c, C - c, whole);
	if (table) {
		load(p, table + span_token(&d.span, n) * C + c, C - c, whole);
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] += p[i];
	}
	drop_row(v, d, n, C, c);
	store(out + n * C + c, v, C - c, whole);
}

template <typename T> static void position_forward(const struct kernel_place *k, const struct op_position_forward *a)
{
	int64_t N = a->out.shape[0], C = a->out.shape[1];
	bool whole = rows_are_whole<T>(C, {a->out.data, a->x.data, a->table.data});
	LAUNCH((position_forward_kernel<T>), row_grid(N, C, WIDTH<T>), THREADS, 0, k->stream, static_cast<T *>(a->out.data),
	       static_cast<const T *>(a->x.data), static_cast<const T *>(a->table.data), drop_of(&a->dropout, k->scalars),
	       C, whole);
}

void kernel_position_forward(const struct kernel_place *k, const struct op_position_forward *a)
{
	WITH_TYPE(a->out.dtype, position_forward<T>(k, a));
}

/* Block i takes one token's place in every sample; where the span says nothing, row i. */
template <typename T>
__global__ void position_backward_kernel(T *dx, const T *dout, float *dtable, drop d, bool placed, int64_t N, int64_t C,
					 bool whole)
{
	constexpr int W = WIDTH<T>;
	int64_t place = blockIdx.x, c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * W;
	if (c >= C)
		return;
	int64_t k = place, last = N - 1, step = N;
	float *row = nullptr;
	if (placed) {
		step = d.span.length;
		k = d.span.row + (place - d.span.row % step + step) % step;
		last = span_row(&d.span, N - 1);
		row = dtable ? dtable + span_place(&d.span, place) * C + c : nullptr;
	}
	float sum[W];
#pragma unroll
	for (int i = 0; i < W; i++)
		sum[i] = 0;
	if (row)
		load_sums(sum, row, C - c, whole);
	for (; k <= last; k += step) {
		int64_t n = placed ? span_find(&d.span, k) : k;
		if (n < 0)
			continue;
		float v[W];
		load(v, dout + n * C + c, C - c, whole);
		drop_row(v, d, n, C, c);
		store(dx + n * C + c, v, C - c, whole);
#pragma unroll
		for (int i = 0; i < W; i++)
			sum[i] += v[i];
	}
	if (row)
		store_sums(row, sum, C - c, whole);
}

template <typename T> static void position_backward(const struct kernel_place *k, const struct op_position_backward *a)
{
	int64_t N = a->dx.shape[0], C = a->dx.shape[1];
	drop d = drop_of(&a->dropout, k->scalars);
	bool placed = d.on || tensor_given(a->dtable);
	bool whole = rows_are_whole<T>(C, {a->dx.data, a->dout.data, a->dtable.data});
	LAUNCH((position_backward_kernel<T>), row_grid(placed ? d.span.length : N, C, WIDTH<T>), THREADS, 0, k->stream,
	       static_cast<T *>(a->dx.data), static_cast<const T *>(a->dout.data), static_cast<float *>(a->dtable.data),
	       d, placed, N, C, whole);
}

void kernel_position_backward(const struct kernel_place *k, const struct op_position_backward *a)
{
	WITH_TYPE(a->dx.dtype, position_backward<T>(k, a));
}

#include "columns.h"
#include "dropout.h"
#include "vector.h"

/* A row is kept in registers between its passes: up to PIECES pieces a thread, as they lie in memory. */
static constexpr int PIECES = 8, KEPT = 4, WIDE = 256, THREADS_MOST = 512;

/* Parts of norm_backward: so many at most, and parts · C stays under WORKSPACE_NORM_SUMS. */
static constexpr int64_t PARTS_MOST = 512;

/* Threads for a row of so many pieces: one piece each up to WIDE threads, then more pieces, then more threads. */
static int row_threads(int64_t pieces)
{
	int64_t each = divide_up(pieces, WIDE);
	int64_t threads = divide_up(divide_up(pieces, each < PIECES ? each : PIECES), 32) * 32;
	if (threads > THREADS_MOST)
		die(CODE_MACHINE, "norm: rows of %lld pieces are wider than its kernel holds", (long long)pieces);
	return (int)threads;
}

template <typename T> struct norm_args {
	T *sum, *out;                   /* sum NULL: x is normalised as it is; out NULL: no norm */
	const T *residual, *x, *x_bias; /* x_bias ? */
	const T *weight, *bias;         /* bias ? */
	float *mean, *rstd;
	int64_t C;
	drop dropout;
	float epsilon;
	bool layer, whole;
};

/* One block a row: sum = residual + dropout(x + bias), out = norm(sum). */
template <typename T>
__global__ void __launch_bounds__(THREADS_MOST, sizeof(T) == 4 ? 1 : 0) /* left to itself FP32 aims at two blocks and spills */
	norm_kernel(const norm_args<T> a)
{
	constexpr int W = WIDTH<T>;
	int64_t row = blockIdx.x, at = row * a.C;
	uint4 raw[PIECES];
	float total[1] = {0};
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
		int64_t c = ((int64_t)j * blockDim.x + threadIdx.x) * W, left = a.C - c;
		if (left <= 0)
			break;
		float v[W], r[W];
		raw[j] = load_raw(a.x + at + c, left, a.whole);
		unpack<T>(v, raw[j]);
		if (a.sum) {
			if (a.x_bias) {
				load(r, a.x_bias + c, left, a.whole);
#pragma unroll
				for (int i = 0; i < W; i++)
					v[i] += r[i];
			}
			drop_row(v, a.dropout, row, a.C, c);
			load(r, a.residual + at + c, left, a.whole);
#pragma unroll
			for (int i = 0; i < W; i++)
				v[i] += r[i];
			raw[j] = pack<T>(v);
			unpack<T>(v, raw[j]);
			store(a.sum + at + c, v, left, a.whole);
		}
#pragma unroll
		for (int i = 0; i < W; i++)
			total[0] += v[i]; /* 0 beyond the row */
	}
	if (!a.out)
		return;
	float mean = 0;
	if (a.layer) {
		block_sum(total);
		mean = total[0] / (float)a.C;
	}
	float squares[1] = {0};
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
		int64_t left = a.C - ((int64_t)j * blockDim.x + threadIdx.x) * W;
		if (left <= 0)
			break;
		float v[W];
		unpack<T>(v, raw[j]);
#pragma unroll
		for (int i = 0; i < W; i++)
			squares[0] += i < left ? (v[i] - mean) * (v[i] - mean) : 0.0f;
	}
	block_sum(squares);
	float rstd = 1.0f / sqrtf(squares[0] / (float)a.C + a.epsilon);
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
		int64_t c = ((int64_t)j * blockDim.x + threadIdx.x) * W, left = a.C - c;
		if (left <= 0)
			break;
		float v[W], w[W], b[W];
		unpack<T>(v, raw[j]);
		load(w, a.weight + c, left, a.whole);
#pragma unroll
		for (int i = 0; i < W; i++)
			b[i] = 0;
		if (a.bias)
			load(b, a.bias + c, left, a.whole);
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] = (v[i] - mean) * rstd * w[i] + b[i];
		store(a.out + at + c, v, left, a.whole);
	}
	if (threadIdx.x == 0) {
		if (a.mean)
			a.mean[row] = mean;
		a.rstd[row] = rstd;
	}
}

template <typename T> static void norm(const struct kernel_place *k, const struct op_residual_forward *a)
{
	norm_args<T> n = {static_cast<T *>(a->sum.data),
			  static_cast<T *>(a->out.data),
			  static_cast<const T *>(a->residual.data),
			  static_cast<const T *>(a->x.data),
			  static_cast<const T *>(a->bias.data),
			  static_cast<const T *>(a->norm_weight.data),
			  static_cast<const T *>(a->norm_bias.data),
			  static_cast<float *>(a->mean.data),
			  static_cast<float *>(a->rstd.data),
			  a->x.shape[1],
			  drop_of(&a->dropout, k->scalars),
			  (float)a->epsilon,
			  a->kind == NORM_LAYER,
			  false};
	n.whole = rows_are_whole<T>(n.C, {n.sum, n.out, n.residual, n.x, n.x_bias, n.weight, n.bias});
	LAUNCH((norm_kernel<T>), (unsigned)a->x.shape[0], row_threads(divide_up(n.C, WIDTH<T>)), 0, k->stream, n);
}

void kernel_residual_forward(const struct kernel_place *k, const struct op_residual_forward *a)
{
	WITH_TYPE(a->x.dtype, norm<T>(k, a));
}

void kernel_norm_forward(const struct kernel_place *k, const struct op_norm_forward *a)
{
	struct op_residual_forward r = {};
	r.x = a->x;
	r.out = a->out;
	r.mean = a->mean;
	r.rstd = a->rstd;
	r.norm_weight = a->weight;
	r.norm_bias = a->bias;
	r.kind = a->kind;
	r.epsilon = a->epsilon;
	kernel_residual_forward(k, &r);
}

template <typename T> struct norm_backward_args {
	T *dx;
	const T *dout, *dresidual, *x, *weight; /* dresidual ? */
	const float *mean, *rstd;               /* mean ? */
	float *partial;                         /* [2, parts, C] */
	int64_t N, C;
	bool layer, whole;
};

/* What a row of norm_backward is made from. */
template <typename T> struct row_backward {
	int64_t at;
	float mean, rstd;
	float g[2]; /* this thread's share of Σ g and Σ g·x̂, then their means */
};

/* The sums over piece i of a row: what goes into dweight and dbias, and into the row's means. */
template <typename T>
__device__ inline void add_piece(const norm_backward_args<T> &a, row_backward<T> &row, float4 *sums, int64_t pieces, int64_t i,
				 uint4 raw_x, uint4 raw_d)
{
	constexpr int W = WIDTH<T>, QUARTERS = W / 4;
	float x[W], d[W], w[W];
	unpack<T>(x, raw_x);
	unpack<T>(d, raw_d);
	load(w, a.weight + i * W, a.C - i * W, a.whole);
#pragma unroll
	for (int q = 0; q < QUARTERS; q++) {
		float4 dw = sums[q * pieces + i], db = sums[(QUARTERS + q) * pieces + i];
		float *dw_at[4] = {&dw.x, &dw.y, &dw.z, &dw.w}, *db_at[4] = {&db.x, &db.y, &db.z, &db.w};
#pragma unroll
		for (int e = 0; e < 4; e++) {
			float hat = (x[4 * q + e] - row.mean) * row.rstd, dout = d[4 * q + e];
			*dw_at[e] += dout * hat;
			*db_at[e] += dout;
			row.g[0] += dout * w[4 * q + e];
			row.g[1] += dout * w[4 * q + e] * hat;
		}
		sums[q * pieces + i] = dw;
		sums[(QUARTERS + q) * pieces + i] = db;
	}
}

template <typename T>
__device__ inline void put_piece(const norm_backward_args<T> &a, const row_backward<T> &row, int64_t i, uint4 raw_x, uint4 raw_d)
{
	constexpr int W = WIDTH<T>;
	int64_t c = i * W, left = a.C - c;
	float x[W], d[W], w[W], r[W];
	unpack<T>(x, raw_x);
	unpack<T>(d, raw_d);
	load(w, a.weight + c, left, a.whole);
#pragma unroll
	for (int e = 0; e < W; e++)
		r[e] = 0;
	if (a.dresidual)
		load(r, a.dresidual + row.at + c, left, a.whole);
#pragma unroll
	for (int e = 0; e < W; e++)
		r[e] += row.rstd * (d[e] * w[e] - row.g[0] - (x[e] - row.mean) * row.rstd * row.g[1]);
	store(a.dx + row.at + c, r, left, a.whole);
}

/* Block p takes rows p, p + parts, …; each thread keeps the sums for its own columns in shared memory, so that they
 * cost no registers and need no barrier. KEPT pieces stay in registers between the passes over a row; those of very wide
 * rows are read again, out of a cache. */
template <typename T> __global__ void __launch_bounds__(THREADS_MOST) norm_backward_kernel(const norm_backward_args<T> a)
{
	constexpr int W = WIDTH<T>, QUARTERS = W / 4;
	shared_dynamic(float4, sums); /* [2, QUARTERS, pieces] */
	int64_t pieces = (a.C + W - 1) / W, parts = gridDim.x;
	for (int64_t i = threadIdx.x; i < pieces; i += blockDim.x) {
#pragma unroll
		for (int q = 0; q < 2 * QUARTERS; q++)
			sums[q * pieces + i] = make_float4(0, 0, 0, 0);
	}
	for (int64_t n = blockIdx.x; n < a.N; n += parts) {
		row_backward<T> row = {n * a.C, a.layer ? a.mean[n] : 0.0f, a.rstd[n], {0, 0}};
		const T *x = a.x + row.at, *d = a.dout + row.at;
		uint4 raw_x[KEPT], raw_d[KEPT];
#pragma unroll
		for (int j = 0; j < KEPT; j++) {
			int64_t i = (int64_t)j * blockDim.x + threadIdx.x;
			if (i >= pieces)
				break;
			raw_x[j] = load_raw(x + i * W, a.C - i * W, a.whole);
			raw_d[j] = load_raw(d + i * W, a.C - i * W, a.whole);
			add_piece(a, row, sums, pieces, i, raw_x[j], raw_d[j]);
		}
#pragma unroll 1
		for (int64_t i = (int64_t)KEPT * blockDim.x + threadIdx.x; i < pieces; i += blockDim.x)
			add_piece(a, row, sums, pieces, i, load_raw(x + i * W, a.C - i * W, a.whole),
				  load_raw(d + i * W, a.C - i * W, a.whole));
		block_sum(row.g);
		row.g[0] = a.layer ? row.g[0] / (float)a.C : 0.0f;
		row.g[1] /= (float)a.C;
#pragma unroll
		for (int j = 0; j < KEPT; j++) {
			int64_t i = (int64_t)j * blockDim.x + threadIdx.x;
			if (i >= pieces)
				break;
			put_piece(a, row, i, raw_x[j], raw_d[j]);
		}
#pragma unroll 1
		for (int64_t i = (int64_t)KEPT * blockDim.x + threadIdx.x; i < pieces; i += blockDim.x)
			put_piece(a, row, i, load_raw(x + i * W, a.C - i * W, a.whole),
				  load_raw(d + i * W, a.C - i * W, a.whole));
	}
	for (int64_t i = threadIdx.x; i < pieces; i += blockDim.x) {
#pragma unroll
		for (int s = 0; s < 2; s++) {
			float v[W];
#pragma unroll
			for (int q = 0; q < QUARTERS; q++) {
				float4 f = sums[(s * QUARTERS + q) * pieces + i];
				v[4 * q] = f.x, v[4 * q + 1] = f.y, v[4 * q + 2] = f.z, v[4 * q + 3] = f.w;
			}
			store_sums(a.partial + (s * parts + blockIdx.x) * a.C + i * W, v, a.C - i * W, a.whole);
		}
	}
}

template <typename T> static void norm_backward(const struct kernel_place *k, const struct op_norm_backward *a)
{
	int64_t N = a->x.shape[0], C = a->x.shape[1], pieces = divide_up(C, WIDTH<T>), parts = WORKSPACE_NORM_SUMS / C;
	if (parts > PARTS_MOST)
		parts = PARTS_MOST;
	if (parts > N)
		parts = N;
	if (parts < 1)
		parts = 1;
	norm_backward_args<T> n = {static_cast<T *>(a->dx.data),
				   static_cast<const T *>(a->dout.data),
				   static_cast<const T *>(a->dresidual.data),
				   static_cast<const T *>(a->x.data),
				   static_cast<const T *>(a->weight.data),
				   static_cast<const float *>(a->mean.data),
				   static_cast<const float *>(a->rstd.data),
				   static_cast<float *>(k->workspace),
				   N,
				   C,
				   a->kind == NORM_LAYER,
				   false};
	n.whole = rows_are_whole<T>(C, {n.dx, n.dout, n.dresidual, n.x, n.weight, n.partial});
	LAUNCH((norm_backward_kernel<T>), (unsigned)parts, row_threads(pieces),
	       (size_t)pieces * WIDTH<T> * 2 * sizeof(float), k->stream, n);
	columns_finish(k, static_cast<float *>(a->dweight.data), static_cast<float *>(a->dbias.data), n.partial, parts, C);
}

void kernel_norm_backward(const struct kernel_place *k, const struct op_norm_backward *a)
{
	WITH_TYPE(a->x.dtype, norm_backward<T>(k, a));
}

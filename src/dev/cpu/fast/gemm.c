#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/pack.h"
#include "dev/cpu/parallel.h"

/* The output is cut into chunks, a chunk into tasks of TASK_M × TASK_N, a task into tiles of TILE_M × TILE_N that live in
 * registers while TILE_K steps of the sum go by. For each block of steps both operands of a chunk are packed, then its
 * tasks run. The operands of a task stay in the second-level cache, a panel of a in the first. All cuts follow from
 * the shape, and each tile is summed by one thread in one order. */
enum {
	TILE_M = LANES == 16 ? 8 : 4,
	TILE_V = 3,
	TILE_N = TILE_V * LANES,
	TILE_K = LANES == 16 ? 768 : 384,
	TASK_M = 128,
	TASK_N = 384,
	CHUNK = 1536, /* of both dimensions */
	PANEL_A = TILE_K * TILE_M + PACK_SLACK, /* floats from one panel to the next */
	PANEL_B = TILE_K * TILE_N + LANES,
	STEPS = 16,
	AHEAD = TILE_N * 4 * STEPS / (TASK_M / TILE_M), /* bytes to fetch ahead in so many steps of the sum */
};

struct job {
	const struct op_gemm *op;
	int64_t m, n, k;
	int64_t i, j, p;             /* where the chunk and the block of steps begin */
	int64_t rows, columns, depth; /* how large they are */
	bool pack_a, pack_b;
	bool first, last; /* of the blocks of steps */
	float *a, *b;     /* packed panels */
	float *partial;   /* [CHUNK, CHUNK]: sums between blocks where the output is not F32 */
};

/* The length of the pieces when n is cut into as few equal multiples of unit as none exceeds most. */
static int64_t piece(int64_t n, int64_t most, int64_t unit)
{
	return ceil_div(ceil_div(n, ceil_div(n, most)), unit) * unit;
}

INLINE void pack_a(enum dtype t, const struct job *w, int64_t task)
{
	const struct tensor a = w->op->a;
	const int64_t begin = task * TASK_M, end = least(begin + TASK_M, w->rows);
	float *out = w->a + begin / TILE_M * PANEL_A;
	if (w->op->a_transposed) {
		pack_columns(t, out, TILE_M, PANEL_A, row_at(t, a.data, w->p * w->m + w->i + begin), w->m, end - begin,
			     w->rows - begin, w->depth);
		return;
	}
	for (int64_t i = begin; i < end; i += TILE_M, out += PANEL_A)
		pack_rows(t, out, TILE_M, TILE_M, row_at(t, a.data, (w->i + i) * w->k + w->p), w->k, w->rows - i, w->depth);
}

INLINE void pack_b(enum dtype t, const struct job *w, int64_t task)
{
	const struct tensor b = w->op->b;
	const int64_t begin = task * TASK_N, end = least(begin + TASK_N, w->columns);
	float *out = w->b + begin / TILE_N * PANEL_B;
	if (!w->op->b_transposed) {
		pack_columns(t, out, TILE_N, PANEL_B, row_at(t, b.data, w->p * w->n + w->j + begin), w->n, end - begin,
			     w->columns - begin, w->depth);
		return;
	}
	for (int64_t j = begin; j < end; j += TILE_N, out += PANEL_B)
		for (int x = 0; x < TILE_N; x += LANES)
			pack_rows(t, out + x, TILE_N, LANES, row_at(t, b.data, (w->j + j + x) * w->k + w->p), w->k,
				  w->columns - j - x, w->depth);
}

static void pack_part(void *context, int64_t part, int thread)
{
	const struct job *w = context;
	int64_t parts_a = w->pack_a ? ceil_div(w->rows, TASK_M) : 0;
	if (part < parts_a)
		BY_TYPE(w->op->a.dtype, pack_a, w, part);
	else
		BY_TYPE(w->op->b.dtype, pack_b, w, part - parts_a);
}

/* One step of the sum: a column of a times a row of b. */
INLINE void step(vf c[TILE_M][TILE_V], const float *a, const float *b)
{
	vf row[TILE_V];
#pragma GCC unroll 3
	for (int v = 0; v < TILE_V; v++)
		row[v] = vf_load(b + v * LANES);
#pragma GCC unroll 8
	for (int i = 0; i < TILE_M; i++) {
		vf x = vf_set(a[i]);
#pragma GCC unroll 3
		for (int v = 0; v < TILE_V; v++)
			c[i][v] = vf_fma(x, row[v], c[i][v]);
	}
}

/* tile = Σ over k steps, all in registers. Meanwhile fetches the stretch at `ahead`, as much as the tiles of one column of
 * a task need to fetch a whole panel of b between them. */
INLINE void multiply(int64_t k, const float *a, const float *b, const char *ahead, float *tile)
{
	vf c[TILE_M][TILE_V];
#pragma GCC unroll 8
	for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 3
		for (int v = 0; v < TILE_V; v++)
			c[i][v] = vf_set(0);
	int64_t kk = 0;
	for (; kk + STEPS <= k; kk += STEPS) {
#pragma GCC unroll 4
		for (int line = 0; line < AHEAD; line += 64)
			__builtin_prefetch(ahead + line, 0, 2);
		ahead += AHEAD;
#pragma GCC unroll 4
		for (int i = 0; i < STEPS; i++, a += TILE_M, b += TILE_N)
			step(c, a, b);
	}
	for (; kk < k; kk++, a += TILE_M, b += TILE_N)
		step(c, a, b);
#pragma GCC unroll 8
	for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 3
		for (int v = 0; v < TILE_V; v++)
			vf_store(tile + i * TILE_N + v * LANES, c[i][v]);
}

/* Where sums of a tile row live between blocks: in the output where it is F32. */
INLINE float *sums_of(const struct job *w, int64_t i, int64_t j)
{
	const struct tensor *out = &w->op->out;
	return out->dtype == F32 ? (float *)out->data + (w->i + i) * w->n + w->j + j : w->partial + i * CHUNK + j;
}

/* Takes a finished tile to where it belongs: added to what earlier blocks left, and after the last block through the
 * epilogue. i, j: its corner in the chunk. to: the type of the output. */
INLINE void finish(enum dtype to, const struct job *w, const float *tile, int64_t i, int64_t j)
{
	const struct op_gemm *op = w->op;
	const int64_t rows = least(TILE_M, w->rows - i), columns = least(TILE_N, w->columns - j);
	const bool add = !w->first || op->accumulate, bias = tensor_given(op->bias);
	for (int64_t r = 0; r < rows; r++) {
		int64_t row = (w->i + i + r) * w->n + w->j + j; /* in out and aux */
		float *sums = sums_of(w, i + r, j);
		for (int64_t at = 0; at < columns; at += LANES) {
			vf x = vf_load(tile + r * TILE_N + at);
			if (add)
				x += get_to(F32, sums, at, columns);
			if (!w->last) {
				put_to(F32, sums, at, x, columns);
				continue;
			}
			if (bias)
				x += get_to(to, op->bias.data, w->j + j + at, w->n);
			if (op->epilogue == GEMM_BIAS_GELU) {
				x = rounded(to, x);
				put_to(to, row_at(to, op->aux.data, row), at, x, columns);
				x = vf_gelu(op->gelu, x);
			}
			if (op->epilogue == GEMM_DGELU)
				x *= vf_dgelu(op->gelu, get_to(to, row_at(to, op->aux.data, row), at, columns));
			put_to(to, row_at(to, op->out.data, row), at, x, columns);
		}
	}
}

static void compute_part(void *context, int64_t part, int thread)
{
	const struct job *w = context;
	int64_t across = ceil_div(w->columns, TASK_N);
	int64_t i0 = part / across * TASK_M, j0 = part % across * TASK_N;
	int64_t i1 = least(i0 + TASK_M, w->rows), j1 = least(j0 + TASK_N, w->columns);
	float tile[TILE_M * TILE_N] __attribute__((aligned(64)));
	for (int64_t j = j0; j < j1; j += TILE_N) {
		const float *b = w->b + j / TILE_N * PANEL_B;
		const char *ahead = (const char *)(j + TILE_N < j1 ? b + PANEL_B : b);
		for (int64_t i = i0; i < i1; i += TILE_M, ahead += w->depth / STEPS * AHEAD) {
			for (int64_t r = i; r < least(i + TILE_M, w->rows); r++)
				for (int v = 0; v < TILE_N; v += 16)
					__builtin_prefetch(sums_of(w, r, j + v), 1);
			multiply(w->depth, w->a + i / TILE_M * PANEL_A, b, ahead, tile);
			BY_TYPE(w->op->out.dtype, finish, w, tile, i, j);
		}
	}
}

size_t FAST(gemm_room)(const struct dev_limits *limits)
{
	int64_t most = limits->rows > limits->width ? limits->rows : limits->width;
	int64_t lines = least(CHUNK, ceil_div(most, TASK_N) * TASK_N) + TILE_N;
	return (size_t)(lines / TILE_M * PANEL_A + lines / TILE_N * PANEL_B + least(CHUNK, most) * CHUNK) * sizeof(float);
}

void FAST(gemm)(struct device *dev, const struct op_gemm *op)
{
	if (op->a.dtype == F64) {
		ops_plain.gemm(dev, op);
		return;
	}
	struct job w = {.op = op, .m = op->out.shape[0], .n = op->out.shape[1]};
	w.k = op->a.shape[op->a_transposed ? 0 : 1];
	const int64_t rows = piece(w.m, CHUNK, TILE_M), columns = piece(w.n, CHUNK, TILE_N);
	const int64_t depth = piece(w.k, TILE_K, LANES);
	w.a = cpu_room(dev);
	w.b = w.a + ceil_div(rows, TILE_M) * PANEL_A;
	w.partial = w.b + ceil_div(columns, TILE_N) * PANEL_B;

	for (w.i = 0; w.i < w.m; w.i += rows) {
		w.rows = least(rows, w.m - w.i);
		w.pack_a = true;
		for (w.j = 0; w.j < w.n; w.j += columns) {
			w.columns = least(columns, w.n - w.j);
			w.pack_b = true;
			for (w.p = 0; w.p < w.k; w.p += depth) {
				w.depth = least(depth, w.k - w.p);
				w.first = w.p == 0;
				w.last = w.p + w.depth == w.k;
				int64_t tasks_m = ceil_div(w.rows, TASK_M), tasks_n = ceil_div(w.columns, TASK_N);
				parallel(dev, (w.pack_a ? tasks_m : 0) + tasks_n, pack_part, &w);
				parallel(dev, tasks_m * tasks_n, compute_part, &w);
				w.pack_a = depth < w.k; /* else the panels of a serve the next chunk too */
			}
		}
	}
}

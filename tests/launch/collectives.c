/* Every collective on odd sizes and every type, against sums made here in rank order, bit for bit. */
#include "job.h"
#include "twin.h"

static int failures;

#define expect(condition, ...)                                                               \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			failures++;                                                          \
			fprintf(stderr, "rank %d: %s:%d: ", log_rank(), __FILE__, __LINE__); \
			fprintf(stderr, __VA_ARGS__);                                        \
			fputc('\n', stderr);                                                 \
		}                                                                            \
	} while (0)

static const enum dtype all_types[] = {F64, F32, BF16, F16, I32, I64, U8};
static const enum dtype float_types[] = {F64, F32, BF16, F16};
enum { ALL_TYPES = 7, FLOAT_TYPES = 4 };

/* Slices of these sizes start and end everywhere: within a vector, past a block, past a round of a transport's scratch. */
static const int64_t sizes[] = {1, 2, 3, 17, 255, 1031, 20011};
enum { SIZES = 7 };
static const int64_t LONG = 2300003;

/* Element i of what rank r contributes to a call: random bits made a number of moderate size, so that sums round. */
static double value(int salt, int r, int64_t i)
{
	uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)r * 0xbf58476d1ce4e5b9u + (uint64_t)salt * 0x94d049bb133111ebu;
	x ^= x >> 31;
	x *= 0xd6e8feb86659fd93u;
	x ^= x >> 29;
	double unit = (double)(int64_t)(x >> 11) * 0x1p-53 - 0.5;
	return unit * (double)(1 << (x & 7));
}

static void put(void *data, enum dtype t, int64_t i, double v)
{
	switch (t) {
	case F64:
		((double *)data)[i] = v;
		return;
	case F32:
		((float *)data)[i] = (float)v;
		return;
	case BF16:
		((uint16_t *)data)[i] = bf16_from_float((float)v);
		return;
	case F16:
		((uint16_t *)data)[i] = fp16_from_float((float)v);
		return;
	case I32:
		((int32_t *)data)[i] = (int32_t)(v * 1e6);
		return;
	case I64:
		((int64_t *)data)[i] = (int64_t)(v * 1e15);
		return;
	default:
		((uint8_t *)data)[i] = (uint8_t)(int)(v * 1e6);
	}
}

static struct tensor make(enum dtype t, int64_t rows, int64_t columns)
{
	void *data = malloc((size_t)(rows * columns) * dtype_size(t));
	check(data);
	return tensor_2d(data, t, rows, columns);
}

static void fill(struct tensor t, int salt, int r)
{
	for (int64_t i = 0; i < tensor_count(t); i++)
		put(t.data, t.dtype, i, value(salt, r, i));
}

static void expect_same(const char *what, struct tensor got, struct tensor want, const struct comm *c)
{
	const char *g = got.data, *w = want.data;
	size_t n = tensor_bytes(want), size = dtype_size(want.dtype);
	for (size_t i = 0; i < n; i++)
		if (g[i] != w[i]) {
			expect(false, "%s in %s of %d: %s [%ld]: element %zu differs", what, comm_name(c), comm_size(c),
			       dtype_name(want.dtype), (long)tensor_count(want), i / size);
			return;
		}
}

/* Σ over ranks of what fill(…, salt, r) gives, the definition: FP32 (FP64 for F64), in rank order, rounded once. */
static void fill_sum(struct tensor t, int salt, int ranks)
{
	for (int64_t i = 0; i < tensor_count(t); i++) {
		if (t.dtype == F64) {
			double sum = value(salt, 0, i);
			for (int r = 1; r < ranks; r++)
				sum += value(salt, r, i);
			put(t.data, F64, i, sum);
			continue;
		}
		volatile float sum = 0;
		for (int r = 0; r < ranks; r++) {
			float one = (float)value(salt, r, i);
			if (t.dtype == F16)
				one = float_from_fp16(fp16_from_float(one));
			else if (t.dtype == BF16)
				one = float_from_bf16(bf16_from_float(one));
			sum = r ? sum + one : one;
		}
		put(t.data, t.dtype, i, (double)sum);
	}
}

static void finish(struct comm *c, struct device *dev, enum queue q)
{
	twin_finish(dev, q);
}

static void test_all_reduce(struct comm *c, struct device *dev, enum dtype t, int64_t n)
{
	struct tensor got = make(t, 1, n), want = make(t, 1, n);
	fill(got, 1, comm_rank(c));
	fill_sum(want, 1, comm_size(c));
	twin_all_reduce(c, Q_TENSOR, got);
	finish(c, dev, Q_TENSOR);
	expect_same("all-reduce", got, want, c);
	free(got.data);
	free(want.data);
}

static void test_reduce_scatter(struct comm *c, struct device *dev, enum dtype t, int64_t n, bool in_place)
{
	int size = comm_size(c), rank = comm_rank(c);
	struct tensor in = make(t, 2 * size, n), want = make(t, 2 * size, n);
	struct tensor out = in_place ? tensor_rows(in, 2 * rank, 2) : make(t, 2, n);
	fill(in, 2, rank);
	fill_sum(want, 2, size);
	twin_reduce_scatter(c, Q_DATA, out, in);
	finish(c, dev, Q_DATA);
	expect_same("reduce-scatter", out, tensor_rows(want, 2 * rank, 2), c);
	if (!in_place)
		free(out.data);
	free(in.data);
	free(want.data);
}

static void test_all_gather(struct comm *c, struct device *dev, enum dtype t, int64_t n, bool in_place)
{
	int size = comm_size(c), rank = comm_rank(c);
	struct tensor out = make(t, 3 * size, n), want = make(t, 3 * size, n);
	struct tensor in = in_place ? tensor_rows(out, 3 * rank, 3) : make(t, 3, n);
	fill(in, 3, rank);
	for (int r = 0; r < size; r++)
		fill(tensor_rows(want, 3 * r, 3), 3, r);
	twin_all_gather(c, Q_DATA, out, in);
	finish(c, dev, Q_DATA);
	expect_same("all-gather", out, want, c);
	if (!in_place)
		free(in.data);
	free(out.data);
	free(want.data);
}

static void test_broadcast(struct comm *c, struct device *dev, enum dtype t, int64_t n, int root)
{
	struct tensor got = make(t, 1, n), want = make(t, 1, n);
	fill(got, 4, comm_rank(c));
	fill(want, 4, root);
	twin_broadcast(c, Q_PIPE, got, root);
	finish(c, dev, Q_PIPE);
	expect_same("broadcast", got, want, c);
	free(got.data);
	free(want.data);
}

/* Everybody gives to the right and to the left at once; types differ within one call. */
static void test_ring(struct comm *c, struct device *dev, int64_t n)
{
	int size = comm_size(c), rank = comm_rank(c), right = (rank + 1) % size, left = (rank + size - 1) % size;
	struct tensor give = make(F16, 1, n), take = make(F16, 1, n), want = make(F16, 1, n);
	struct tensor give_back = make(F64, 1, n), take_back = make(F64, 1, n), want_back = make(F64, 1, n);
	fill(give, 5, rank);
	fill(want, 5, left);
	fill(give_back, 6, rank);
	fill(want_back, 6, right);
	struct transfer list[] = {
		{right, TRANSFER_SEND, give},
		{left, TRANSFER_RECEIVE, take},
		{left, TRANSFER_SEND, give_back},
		{right, TRANSFER_RECEIVE, take_back},
	};
	twin_exchange(c, Q_PIPE, list, 4);
	finish(c, dev, Q_PIPE);
	expect_same("ring", take, want, c);
	expect_same("ring back", take_back, want_back, c);
	struct tensor all[] = {give, take, want, give_back, take_back, want_back};
	for (int i = 0; i < 6; i++)
		free(all[i].data);
}

/* Pairs talk in crossed order, long messages first on one side and last on the other; several to the same peer match in
 * list order. */
static void test_crossed(struct comm *c, struct device *dev)
{
	enum { N = 4, COUNT = 300007 };
	int size = comm_size(c), rank = comm_rank(c), peer = rank ^ 1;
	if (peer < size) {
		struct tensor give[N], take[N], want[N];
		struct transfer list[2 * N];
		for (int i = 0; i < N; i++) {
			give[i] = make(F32, 1, COUNT);
			take[i] = make(F32, 1, COUNT);
			want[i] = make(F32, 1, COUNT);
			fill(give[i], 10 + i, rank);
			fill(want[i], 10 + i, peer);
			list[rank < peer ? i : N + i] = (struct transfer){peer, TRANSFER_SEND, give[i]};
			list[rank < peer ? N + i : i] = (struct transfer){peer, TRANSFER_RECEIVE, take[i]};
		}
		twin_exchange(c, Q_PIPE, list, 2 * N);
		finish(c, dev, Q_PIPE);
		for (int i = 0; i < N; i++) {
			expect_same("crossed", take[i], want[i], c);
			free(give[i].data);
			free(take[i].data);
			free(want[i].data);
		}
	}
}

/* Many calls of every kind on three queues before anything is waited for; ranks wait in different orders. */
static void test_in_flight(struct comm *c, struct device *dev)
{
	enum { CALLS = 6, COUNT = 30011 };
	static const enum queue queues[] = {Q_TENSOR, Q_PIPE, Q_DATA};
	int size = comm_size(c), rank = comm_rank(c);
	struct tensor reduced[CALLS], reduced_want[CALLS], gathered[CALLS], gathered_want[CALLS], cast[CALLS], cast_want[CALLS];
	for (int i = 0; i < CALLS; i++) {
		enum queue q = queues[i % 3];
		reduced[i] = make(F16, 1, COUNT + i);
		reduced_want[i] = make(F16, 1, COUNT + i);
		gathered[i] = make(F32, size, 101 + i);
		gathered_want[i] = make(F32, size, 101 + i);
		cast[i] = make(BF16, 1, 7001 + i);
		cast_want[i] = make(BF16, 1, 7001 + i);
		fill(reduced[i], 20 + i, rank);
		fill(tensor_rows(gathered[i], rank, 1), 30 + i, rank);
		fill(cast[i], 40 + i, rank);
		fill_sum(reduced_want[i], 20 + i, size);
		for (int r = 0; r < size; r++)
			fill(tensor_rows(gathered_want[i], r, 1), 30 + i, r);
		fill(cast_want[i], 40 + i, i % size);
		twin_all_reduce(c, q, reduced[i]);
		twin_all_gather(c, q, gathered[i], tensor_rows(gathered[i], rank, 1));
		twin_broadcast(c, q, cast[i], i % size);
	}
	/* A host call while they run. Some ranks wait for the works first: they need what the others do in the host call. */
	if (rank % 2)
		finish(c, dev, Q_TENSOR);
	int *ranks = malloc((size_t)size * sizeof *ranks);
	comm_host_gather(c, ranks, &rank, sizeof rank);
	for (int r = 0; r < size; r++)
		expect(ranks[r] == r, "host gather among works in flight");
	free(ranks);
	for (int i = 0; i < 3; i++)
		finish(c, dev, queues[(i + rank) % 3]);
	for (int i = 0; i < CALLS; i++) {
		expect_same("in flight, all-reduce", reduced[i], reduced_want[i], c);
		expect_same("in flight, all-gather", gathered[i], gathered_want[i], c);
		expect_same("in flight, broadcast", cast[i], cast_want[i], c);
		struct tensor all[] = {reduced[i], reduced_want[i], gathered[i], gathered_want[i], cast[i], cast_want[i]};
		for (int k = 0; k < 6; k++)
			free(all[k].data);
	}
}

static void test_host(struct comm *c)
{
	int size = comm_size(c), rank = comm_rank(c);
	struct error e = {0};
	char text[100003], *all = malloc(sizeof text * (size_t)size);
	for (int root = 0; root < size; root++) {
		memset(text, 'a' + rank, sizeof text);
		comm_host_broadcast(c, text, sizeof text, root);
		for (size_t i = 0; i < sizeof text; i++)
			expect(text[i] == 'a' + root, "host broadcast");
	}
	memset(text, 'a' + rank, sizeof text);
	comm_host_gather(c, all, text, sizeof text);
	for (int r = 0; r < size; r++)
		expect(all[(size_t)r * sizeof text] == 'a' + r && all[(size_t)(r + 1) * sizeof text - 1] == 'a' + r, "host gather");
	free(all);

	expect(comm_agree(c, &e) && e.code == 0, "agree on nothing wrong");
	if (rank >= size / 2)
		error_set(&e, CODE_DATA, "rank %d is unhappy", rank);
	expect(!comm_agree(c, &e), "agree on something wrong");
	char want[64];
	snprintf(want, sizeof want, "rank %d is unhappy", size / 2);
	expect(e.code == CODE_DATA && strcmp(e.text, want) == 0, "the lowest rank's cause, not \"%s\"", e.text);
	comm_barrier(c);
}

static void test_count(struct comm *c, struct device *dev)
{
	struct tensor t = make(F16, comm_size(c), 10);
	memset(t.data, 0, tensor_bytes(t));
	struct comm_count before = comm_count(c), after;
	twin_all_reduce(c, Q_TENSOR, t);
	twin_all_gather(c, Q_TENSOR, t, tensor_rows(t, comm_rank(c), 1));
	finish(c, dev, Q_TENSOR);
	after = comm_count(c);
	int calls = comm_size(c) > 1;
	expect(after.calls[COMM_ALL_REDUCE] - before.calls[COMM_ALL_REDUCE] == calls, "all-reduces counted");
	expect(after.bytes[COMM_ALL_REDUCE] - before.bytes[COMM_ALL_REDUCE] == calls * 20 * comm_size(c), "bytes counted");
	expect(after.calls[COMM_ALL_GATHER] - before.calls[COMM_ALL_GATHER] == calls, "all-gathers counted");
	expect(after.calls[COMM_BROADCAST] == before.calls[COMM_BROADCAST], "broadcasts counted");
	free(t.data);
}

static void test_group(struct comm *c, struct device *dev)
{
	for (int i = 0; i < SIZES; i++) {
		for (int k = 0; k < FLOAT_TYPES; k++) {
			test_all_reduce(c, dev, float_types[k], sizes[i]);
			test_reduce_scatter(c, dev, float_types[k], sizes[i], k % 2);
		}
		for (int k = 0; k < ALL_TYPES; k++) {
			test_all_gather(c, dev, all_types[k], sizes[i], k % 2);
			test_broadcast(c, dev, all_types[k], sizes[i], (i + k) % comm_size(c));
		}
		test_ring(c, dev, sizes[i]);
	}
	test_crossed(c, dev);
	test_in_flight(c, dev);
	test_host(c);
	test_count(c, dev);
}

/* Halves and, across them, columns in reverse order; who is in neither has no comm. Calls in different groups run at
 * once. */
static void test_split(struct job *j)
{
	int rank = j->launch.rank, size = j->launch.size;
	struct comm *half, *column, *none;
	struct error e = {0};
	job_must(comm_split(&half, j->world, "half", rank * 2 / size, rank, &e), &e);
	job_must(comm_split(&column, j->world, "column", rank % 2, -rank, &e), &e);
	job_must(comm_split(&none, j->world, "some", rank == 0 ? -1 : 0, rank, &e), &e);
	expect((none == NULL) == (rank == 0), "color −1 is in no group");
	expect(comm_rank(column) == (size - 1 - rank) / 2, "ranks of a column are in reverse order");
	test_group(half, j->dev);
	if (size <= 4)
		test_group(column, j->dev);
	if (none)
		test_in_flight(none, j->dev);

	struct tensor a = make(F32, 1, 50021), a_want = make(F32, 1, 50021), b = make(F32, 1, 333), b_want = make(F32, 1, 333);
	fill(a, 50, comm_rank(half));
	fill_sum(a_want, 50, comm_size(half));
	fill(b, 51, comm_rank(column));
	fill_sum(b_want, 51, comm_size(column));
	twin_all_reduce(half, Q_TENSOR, a);
	twin_all_reduce(column, Q_DATA, b);
	finish(column, j->dev, Q_DATA);
	finish(half, j->dev, Q_TENSOR);
	expect_same("at once", a, a_want, half);
	expect_same("at once", b, b_want, column);
	free(a.data);
	free(a_want.data);
	free(b.data);
	free(b_want.data);
	comm_close(none);
	comm_close(column);
	comm_close(half);
}

int main(void)
{
	struct job j;
	job_launch(&j, 60);
	job_open(&j);
	test_group(j.world, j.dev);
	test_split(&j);
	if (j.launch.size <= 4) {
		test_all_reduce(j.world, j.dev, F16, LONG);
		test_all_gather(j.world, j.dev, F32, LONG / 4, false);
		test_broadcast(j.world, j.dev, I32, LONG, 1 % j.launch.size);
		test_reduce_scatter(j.world, j.dev, F64, LONG / 4 / j.launch.size, false);
	}
	int *all = malloc((size_t)j.launch.size * sizeof *all);
	comm_host_gather(j.world, all, &failures, sizeof failures);
	for (int r = 0; r < j.launch.size; r++)
		failures += r == j.launch.rank ? 0 : all[r];
	free(all);
	if (j.launch.rank == 0)
		printf("%d ranks by %s, local %d of %d: %d wrong\n", j.launch.size, j.launch.launcher, j.launch.local_rank,
		       j.launch.local_size, failures);
	job_close(&j);
	return failures ? 1 : 0;
}

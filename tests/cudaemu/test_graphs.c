/* Work kept back and launched as graphs, on the emulator: which lists are the same, when they are captured, what comes behind
 * them, their bounds, and that a call which may not be made in a capture is caught. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/backend.h"
#include "emu.h"
#include "graphs.h"

enum { COUNT = 100 };

/* An op is carried out by one copy; planted: and by a call that breaks a capture, in the third list of three. */
enum planted { NOTHING, QUERY, SYNCHRONIZE, ALLOCATE, RECORD, COPY_NOT_PINNED, LEGACY };
static enum planted planted;
static cudaStream_t stream;
static cudaEvent_t event;
static char *memory; /* of the card */
static int ran;

static void run(void *context, enum graphs_op op, const void *args)
{
	char host[8];
	void *more;
	(void)context;
	(void)op;
	(void)args;
	cudaMemcpyAsync(memory, memory + 8, 8, cudaMemcpyDeviceToDevice, stream);
	if (++ran <= 6)
		return;
	switch (planted) {
	case NOTHING:
		break;
	case QUERY:
		cudaEventQuery(event);
		break;
	case SYNCHRONIZE:
		cudaStreamSynchronize(stream);
		break;
	case ALLOCATE:
		cudaMalloc(&more, 8);
		break;
	case RECORD:
		cudaEventRecord(event, stream);
		break;
	case COPY_NOT_PINNED:
		cudaMemcpyAsync(host, memory, 8, cudaMemcpyDeviceToHost, stream);
		break;
	case LEGACY:
		cudaMemsetAsync(memory, 0, 8, NULL);
		break;
	}
}

static struct graphs *begin(int most)
{
	struct graphs *g;
	struct error e;
	assert_true(graphs_open(&g, &(struct graphs_options){.stream = stream, .run = run, .most = most}, &e));
	graphs_begin(g);
	ran = 0;
	return g;
}

/* Queues the op n times, what comes behind it, and the end of a step. Gives how many ops were carried out for it: 0 where a
 * graph was. */
static int queue(struct graphs *g, enum graphs_op op, const void *args, size_t bytes, int n)
{
	int before = ran;
	for (int i = 0; i < n; i++)
		assert_true(graphs_keep(g, op, args, bytes));
	assert_int_equal(ran, before);
	graphs_flush(g);
	int now = ran - before;
	assert_false(graphs_due(g));
	graphs_end(g);
	if (graphs_due(g))
		graphs_make(g);
	graphs_begin(g);
	return now;
}

static int queue_add(struct graphs *g, void *y, int n)
{
	struct op_add a = {.y = tensor_1d(y, F32, 4), .x = tensor_1d(memory, F32, 4)};
	return queue(g, GRAPHS_add, &a, sizeof a, n);
}

static void the_third_time_is_a_graph(void **state)
{
	struct emu_counts before = *emu_counted();
	struct graphs *g = begin(0);
	(void)state;
	assert_int_equal(queue_add(g, memory, 5), 5);
	assert_int_equal(emu_counted()->graphs, before.graphs);
	assert_int_equal(queue_add(g, memory, 5), 5); /* and captured */
	assert_int_equal(emu_counted()->direct, before.direct + 10);
	assert_int_equal(emu_counted()->launches, before.launches);
	assert_int_equal(queue_add(g, memory, 5), 0);
	assert_int_equal(queue_add(g, memory, 5), 0);
	assert_int_equal(emu_counted()->launches, before.launches + 2);
	assert_int_equal(emu_counted()->launched, before.launched + 10);
	assert_int_equal(emu_counted()->direct, before.direct + 10);
	assert_int_equal(queue_add(g, memory, 4), 4); /* another list */
	assert_int_equal(queue_add(g, memory + 16, 5), 5);
	assert_int_equal(queue_add(g, memory + 16, 5), 5);
	assert_int_equal(queue_add(g, memory + 16, 5), 0);
	assert_int_equal(queue_add(g, memory, 5), 0); /* still there */
	assert_int_equal(emu_counted()->graphs, before.graphs + 2);
	graphs_forget(g);
	assert_int_equal(emu_counted()->graphs, before.graphs);
	assert_int_equal(queue_add(g, memory, 5), 5);
	graphs_end(g);
	graphs_close(g);
}

static void short_lists_and_what_is_outside_are_not(void **state)
{
	struct graphs *g = begin(0);
	struct op_square_sums sums = {.count = 0};
	struct op_add a = {.y = tensor_1d(memory, F32, 4), .x = tensor_1d(memory, F32, 4)};
	long launches = emu_counted()->launches;
	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(queue_add(g, memory, 2), 2);
	assert_true(graphs_keep(g, GRAPHS_add, &a, sizeof a));
	assert_false(graphs_keep(g, GRAPHS_square_sums, &sums, sizeof sums)); /* behind the other */
	assert_int_equal(ran, 9);
	assert_true(graphs_keep(g, GRAPHS_add, &a, sizeof a));
	graphs_end(g);
	assert_int_equal(ran, 10);
	assert_false(graphs_keep(g, GRAPHS_add, &a, sizeof a));
	assert_int_equal(emu_counted()->launches, launches);
	graphs_close(g);
}

/* Fields of residual_forward, over bytes that may be anything. */
static int queue_residual(struct graphs *g, int garbage, double rate, int64_t sample, uint32_t site)
{
	struct op_residual_forward a;
	memset(&a, garbage, sizeof a);
	a.sum = a.residual = a.x = a.bias = a.out = a.mean = a.rstd = a.norm_weight = a.norm_bias = tensor_1d(memory, F32, 4);
	a.dropout.rate = rate;
	a.dropout.seed = 1;
	a.dropout.site = site;
	a.dropout.span = (struct span){.sample = sample, .length = 4, .sequence = 4};
	a.kind = NORM_RMS;
	a.epsilon = 1e-5;
	return queue(g, GRAPHS_residual_forward, &a, sizeof a, 3);
}

static void what_an_op_does_not_read_does_not_count(void **state)
{
	struct graphs *g = begin(0);
	struct op_rope r = {.qkv = tensor_1d(memory, F32, 4), .span = {.length = 4, .sequence = 4}};
	(void)state;
	assert_int_equal(queue_residual(g, 0, 0, 1, 2), 3);
	assert_int_equal(queue_residual(g, 0, 0, 3, 4), 3);
	assert_int_equal(queue_residual(g, 0, 0, 5, 6), 0); /* without dropout neither sample nor site */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(queue_residual(g, 0, 0.5, 7, 8), i < 2 ? 3 : 0);
		assert_int_equal(queue_residual(g, 0, 0.5, 8, 8), i < 2 ? 3 : 0);
		assert_int_equal(queue_residual(g, 0, 0.5, 7, 9), i < 2 ? 3 : 0);
		r.span.sample = i;
		assert_int_equal(queue(g, GRAPHS_rope, &r, sizeof r, 3), i < 2 ? 3 : 0);
	}
	r.span.first = 4;
	assert_int_equal(queue(g, GRAPHS_rope, &r, sizeof r, 3), 3);
#if __has_builtin(__builtin_clear_padding)
	assert_int_equal(queue_residual(g, 0xaa, 0.5, 7, 8), 0);
#endif
	graphs_end(g);
	graphs_close(g);
}

static void bounds_hold(void **state)
{
	long graphs = emu_counted()->graphs;
	struct graphs *g = begin(2);
	(void)state;
	for (int i = 0; i < 4; i++)
		for (int list = 0; list < 3; list++) /* the third is one too many, before the others are graphs */
			assert_int_equal(queue_add(g, memory + 16 * list, 3), i < 2 || list == 2 ? 3 : 0);
	assert_int_equal(emu_counted()->graphs, graphs + 2);
	graphs_end(g);
	graphs_close(g);
	g = begin(0);
	setenv("CUDAEMU_MEMORY", "100000000", 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(queue_add(g, memory, 3), 3); /* the card is too full */
	unsetenv("CUDAEMU_MEMORY");
	graphs_end(g);
	graphs_close(g);
	assert_int_equal(emu_counted()->graphs, graphs);
}

/* In a process of its own; its exit code, and what it said on stderr. */
static int capture_apart(enum planted bug, char *said, size_t room)
{
	int ends[2], status;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		planted = bug;
		struct graphs *g = begin(0);
		for (int i = 0; i < 3; i++)
			queue_add(g, memory, 3);
		_Exit(0);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], said, room - 1);
	said[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void forbidden_calls_are_caught(void **state)
{
	static const struct {
		enum planted bug;
		int code;
		const char *cause;
	} cases[] = {
		{NOTHING, 0, ""}, {QUERY, CODE_MACHINE, "cudaStreamEndCapture"}, {SYNCHRONIZE, CODE_MACHINE, "cudaStreamEndCapture"},
		{ALLOCATE, CODE_MACHINE, "cudaStreamEndCapture"}, {RECORD, CODE_MACHINE, "cudaStreamEndCapture"},
		{COPY_NOT_PINNED, CODE_MACHINE, "cudaStreamEndCapture"}, {LEGACY, EMU_FAULT, "legacy stream"},
	};
	char said[1024];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int code = capture_apart(cases[i].bug, said, sizeof said);
		if (code != cases[i].code || !strstr(said, cases[i].cause))
			fail_msg("call %zu: exit %d, said \"%s\"", i, code, said);
	}
}

static void open_device(struct device **dev, bool graphs)
{
	struct error e;
	struct dev_limits limits = {.rows = COUNT, .width = COUNT, .head_size = 8, .tensors = 1};
	assert_true(dev_open(dev, &backend_cuda, &(struct dev_options){.graphs = graphs}, &e));
	assert_true(dev_reserve(*dev, &limits, &e));
}

static void add(struct device *dev, struct tensor y, struct tensor x, int times)
{
	for (int i = 0; i < times; i++)
		op_add(dev, &(struct op_add){.y = y, .x = x});
}

/* All that a stretch may queue, between ops; what it reads. */
static void stretch(struct device *dev, char *base, float round, float out[COUNT], float seen[COUNT])
{
	struct tensor x = tensor_1d(base, F32, COUNT), y = tensor_1d(base + 512, F32, COUNT), z = tensor_1d(base + 1024, F32, COUNT);
	float values[COUNT];
	for (int i = 0; i < COUNT; i++)
		values[i] = round + (float)i;
	assert_true(dev_begin(dev, &(struct stretch){.name = "forward"}));
	add(dev, y, x, 3);
	dev_write(dev, Q_COMPUTE, x, values);
	add(dev, y, x, 3);
	dev_copy(dev, Q_COMPUTE, z, y);
	add(dev, y, z, 4);
	dev_wait(dev, Q_DATA, dev_mark(dev, Q_COMPUTE));
	dev_read(dev, Q_DATA, seen, y);
	dev_copy(dev, Q_DATA, z, x);
	dev_wait(dev, Q_COMPUTE, dev_mark(dev, Q_DATA));
	add(dev, y, z, 3);
	dev_read(dev, Q_COMPUTE, out, y);
	dev_zero(dev, Q_COMPUTE, y);
	add(dev, y, z, 5);
	dev_end(dev);
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
}

static void the_queue_keeps_its_order(void **state)
{
	static float out[2][COUNT], seen[2][COUNT];
	struct error e;
	long launches = emu_counted()->launches;
	(void)state;
	for (int backwards = 0; backwards < 2; backwards++) {
		struct device *dev[2];
		void *at[2];
		emu_set_backwards(backwards);
		for (int i = 0; i < 2; i++) {
			open_device(&dev[i], i);
			assert_true(dev_take(dev[i], &at[i], 2048, &e));
		}
		for (int round = 0; round < 5; round++) {
			for (int i = 0; i < 2; i++)
				stretch(dev[i], at[i], (float)round, out[i], seen[i]);
			assert_memory_equal(out[0], out[1], sizeof out[0]);
			assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
		}
		for (int i = 0; i < 2; i++) {
			dev_give_back(dev[i], at[i]);
			dev_close(dev[i]);
		}
		emu_set_backwards(false);
	}
	/* Of five lists the first two are alike, so that they are graphs from the second round on, the others from the third. */
	assert_int_equal(emu_counted()->launches - launches, 2 * (2 + 3 * 5));
}

struct slow_work {
	struct work work;
	int rounds; /* until it is done */
};

static bool advance(struct work *w)
{
	return ((struct slow_work *)w)->rounds-- <= 0;
}

/* Making a graph may hold the host, which a queue then must not wait for. */
static void a_graph_is_made_when_nothing_is_under_way(void **state)
{
	struct slow_work w = {.work = {.advance = advance, .call = "all-gather", .group = "data"}, .rounds = 50};
	struct device *dev;
	struct error e;
	void *at;
	long graphs = emu_counted()->graphs;
	(void)state;
	open_device(&dev, true);
	assert_true(dev_take(dev, &at, 1024, &e));
	struct tensor x = tensor_1d(at, F32, COUNT), y = tensor_1d((char *)at + 512, F32, COUNT);
	for (int i = 0; i < 2; i++) {
		assert_true(dev_begin(dev, &(struct stretch){.name = "forward"}));
		add(dev, y, x, 3);
		dev_finish(dev, dev_mark(dev, Q_COPY)); /* in a stretch: not yet */
		dev_end(dev);
	}
	dev_post(dev, Q_DATA, &w.work);
	assert_int_equal(emu_counted()->graphs, graphs);
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
	assert_true(w.rounds < 0);
	assert_int_equal(emu_counted()->graphs, graphs + 1);
	dev_give_back(dev, at);
	dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_third_time_is_a_graph),
		cmocka_unit_test(short_lists_and_what_is_outside_are_not),
		cmocka_unit_test(what_an_op_does_not_read_does_not_count),
		cmocka_unit_test(bounds_hold),
		cmocka_unit_test(forbidden_calls_are_caught),
		cmocka_unit_test(the_queue_keeps_its_order),
		cmocka_unit_test(a_graph_is_made_when_nothing_is_under_way),
	};
	void *at;
	cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
	cudaMalloc(&at, 64);
	memory = at;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

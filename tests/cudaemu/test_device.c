/* The CUDA backend itself, on the emulator: products through cuBLASLt's stand-in against the plain column, and the order
 * that marks, waits and host-driven work give. Streams run as late as they can, in either order. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cases.h"
#include "compare.h"
#include "cuda/backend.h"
#include "dev/cpu/cpu.h"
#include "emu.h"

static const enum dtype types[] = {F32, BF16, F16};
enum { TYPES = sizeof types / sizeof *types };

static struct bench plain, card;

static void check_case(const struct op_cases *cases, int size, unsigned variant, enum dtype type)
{
	struct call r, p, x;
	if (!case_taken(cases, size, variant) || !case_build(&r, cases->build, F64, type, cases->sizes[size], variant))
		return;
	case_build(&p, cases->build, type, type, cases->sizes[size], variant);
	case_build(&x, cases->build, type, type, cases->sizes[size], variant);
	snprintf(x.text, sizeof x.text, "%s %s size %d variant %u", cases->name, dtype_name(type), size, variant);
	call_run(&plain, &r, 0);
	call_run(&plain, &p, 0);
	for (int skew = 0; skew < 2; skew++) {
		call_run(&card, &x, skew);
		compare_calls(&x, &p, &r);
	}
	call_finish(&r);
	call_finish(&p);
	call_finish(&x);
}

/* Every op reaches its kernel: one size each; products in all their forms. */
static void ops_compute(void **state)
{
	(void)state;
	for (int i = 0; i < op_cases_count; i++) {
		const struct op_cases *cases = &op_cases[i];
		bool product = strcmp(cases->name, "gemm") == 0;
		for (int t = 0; t < TYPES; t++)
			for (int size = 1; size < (product ? cases->size_count : 2); size++)
				for (unsigned variant = 0; variant < (product ? cases->variants : 1); variant++)
					check_case(cases, size, variant, types[t]);
	}
}

enum { COUNT = 1000 };

struct slow_work {
	struct work work;
	int rounds;          /* until it is done */
	const float *reads;  /* host memory that must have come by then */
	float *writes;       /* host memory that it fills */
	float seen;
};

static bool advance(struct work *w)
{
	struct slow_work *s = (struct slow_work *)w;
	if (s->rounds-- > 0)
		return false;
	s->seen = s->reads[0];
	for (int i = 0; i < COUNT; i++)
		s->writes[i] = s->reads[i] + 1;
	return true;
}

/* What a transport does with a card's tensor: down, through the host, up, with the compute queue ordered by marks
 * alone. The host does not wait in between. */
static void host_work_keeps_its_place(void **state)
{
	(void)state;
	for (int backwards = 0; backwards < 2; backwards++) {
		struct error e;
		void *memory;
		static float ones[COUNT], down[COUNT], up[COUNT], back[COUNT];
		emu_set_backwards(backwards);
		assert_true(dev_take(card.dev, &memory, sizeof ones * 2, &e));
		struct tensor x = tensor_1d(memory, F32, COUNT), y = tensor_1d((char *)memory + sizeof ones, F32, COUNT);
		for (int i = 0; i < COUNT; i++)
			ones[i] = 1;
		dev_write(card.dev, Q_COMPUTE, x, ones);
		dev_zero(card.dev, Q_COMPUTE, y);
		op_add(card.dev, &(struct op_add){.y = y, .x = x}); /* 1 */
		dev_wait(card.dev, Q_DATA, dev_mark(card.dev, Q_COMPUTE));
		dev_read(card.dev, Q_DATA, down, y);
		struct mark landed = dev_mark(card.dev, Q_DATA);
		dev_finish(card.dev, landed);
		struct slow_work w = {.work = {.advance = advance, .call = "all-reduce", .group = "data"}, .rounds = 20, .reads = down,
				      .writes = up};
		dev_post(card.dev, Q_DATA, &w.work);
		dev_wait(card.dev, Q_COMPUTE, dev_mark(card.dev, Q_DATA));
		op_add(card.dev, &(struct op_add){.y = y, .x = x}); /* 2, after the work */
		dev_read(card.dev, Q_COMPUTE, back, y);
		assert_true(w.rounds > 0); /* nothing has waited for it yet */
		dev_finish(card.dev, dev_mark(card.dev, Q_COMPUTE));
		assert_true(w.rounds < 0);
		assert_true(w.seen == 1);
		assert_true(up[COUNT - 1] == 2);
		assert_true(back[0] == 2 && back[COUNT - 1] == 2);
		dev_give_back(card.dev, memory);
		emu_set_backwards(false);
	}
}

/* Two queues without a mark between them run in any order; with one, in order. */
static void a_wait_orders_queues(void **state)
{
	(void)state;
	for (int backwards = 0; backwards < 2; backwards++) {
		struct error e;
		void *memory;
		static float values[COUNT], out[COUNT];
		emu_set_backwards(backwards);
		assert_true(dev_take(card.dev, &memory, 2 * sizeof values, &e));
		struct tensor x = tensor_1d(memory, F32, COUNT), y = tensor_1d((float *)memory + COUNT, F32, COUNT);
		for (int i = 0; i < COUNT; i++)
			values[i] = (float)i;
		dev_write(card.dev, Q_COPY, x, values);
		dev_copy(card.dev, Q_COPY, y, x);
		dev_wait(card.dev, Q_COMPUTE, dev_mark(card.dev, Q_COPY));
		op_add(card.dev, &(struct op_add){.y = x, .x = y});
		dev_wait(card.dev, Q_TENSOR, dev_mark(card.dev, Q_COMPUTE));
		dev_read(card.dev, Q_TENSOR, out, x);
		dev_finish(card.dev, dev_mark(card.dev, Q_TENSOR));
		for (int i = 0; i < COUNT; i++)
			assert_true(out[i] == 2 * (float)i);
		dev_give_back(card.dev, memory);
		emu_set_backwards(false);
	}
}

/* More small copies than there is pinned room, and one that is too large for it. */
static void copies_come_whole(void **state)
{
	(void)state;
	enum { MANY = 150, LARGE = 100000 };
	struct error e;
	void *memory;
	static float out[MANY], large[LARGE], again[LARGE];
	assert_true(dev_take(card.dev, &memory, sizeof large, &e));
	for (int i = 0; i < MANY; i++) {
		float v = (float)i; /* gone when the copy happens */
		dev_write(card.dev, Q_COMPUTE, tensor_1d((float *)memory + i, F32, 1), &v);
		v = -1;
	}
	for (int i = 0; i < MANY; i++)
		dev_read(card.dev, Q_COMPUTE, out + i, tensor_1d((float *)memory + i, F32, 1));
	dev_finish(card.dev, dev_mark(card.dev, Q_COMPUTE));
	for (int i = 0; i < MANY; i++)
		assert_true(out[i] == (float)i);
	for (int i = 0; i < LARGE; i++)
		large[i] = (float)i;
	dev_write(card.dev, Q_COMPUTE, tensor_1d(memory, F32, LARGE), large);
	dev_read(card.dev, Q_COMPUTE, again, tensor_1d(memory, F32, LARGE));
	dev_finish(card.dev, dev_mark(card.dev, Q_COMPUTE));
	assert_memory_equal(large, again, sizeof large);
	dev_give_back(card.dev, memory);
}

/* What the emulator is trusted with: the host that reads a card's memory is stopped. */
static void memory_is_apart(void **state)
{
	struct error e;
	void *memory;
	int status;
	(void)state;
	assert_true(dev_take(card.dev, &memory, 64, &e));
	pid_t child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile char *)memory);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	dev_give_back(card.dev, memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_compute),
		cmocka_unit_test(host_work_keeps_its_place),
		cmocka_unit_test(a_wait_orders_queues),
		cmocka_unit_test(copies_come_whole),
		cmocka_unit_test(memory_is_apart),
	};
	bench_open(&plain, &backend_cpu, "plain", 1);
	bench_open(&card, &backend_cuda, NULL, 1);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	bench_close(&card);
	bench_close(&plain);
	return failed;
}

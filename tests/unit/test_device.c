/* The CPU device: memory, threads, and communication that is queued. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/parallel.h"

static struct device *dev;

/* A work that is done after so many looks at it, once `allowed`; it notes when. */
struct item {
	struct work work;
	int looks;
	bool allowed;
	int finished; /* its place among all that are done, from 1; 0: not yet */
};
static int finished;

static bool advance(struct work *w)
{
	struct item *item = (struct item *)w;
	if (!item->allowed || --item->looks > 0)
		return false;
	item->finished = ++finished;
	return true;
}

static struct item item_of(int looks, bool allowed)
{
	return (struct item){.work = {.advance = advance, .call = "all-reduce", .group = "tensor"}, .looks = looks,
			     .allowed = allowed};
}

static int open_device(void **state)
{
	struct dev_options options = {.threads = 3};
	struct error e;
	finished = 0;
	return dev_open(&dev, &backend_cpu, &options, &e) ? 0 : -1;
}

static int close_device(void **state)
{
	dev_close(dev);
	return 0;
}

static void work_of_a_queue_ends_in_order(void **state)
{
	struct item a = item_of(50, true), b = item_of(1, true);
	dev_post(dev, Q_TENSOR, &a.work);
	dev_post(dev, Q_TENSOR, &b.work);
	assert_int_equal(b.finished, 0);
	dev_finish(dev, dev_mark(dev, Q_TENSOR));
	assert_int_equal(a.finished, 1);
	assert_int_equal(b.finished, 2);
}

static void a_mark_waits_for_what_was_before_it(void **state)
{
	struct item before = item_of(20, true), after = item_of(1, false), other = item_of(1, false);
	dev_post(dev, Q_PIPE, &other.work);
	dev_post(dev, Q_DATA, &before.work);
	struct mark m = dev_mark(dev, Q_DATA);
	dev_post(dev, Q_DATA, &after.work);
	dev_wait(dev, Q_COMPUTE, m);
	assert_int_equal(before.finished, 1);
	assert_int_equal(after.finished + other.finished, 0);
	after.allowed = other.allowed = true;
	dev_finish(dev, dev_mark(dev, Q_DATA));
	dev_finish(dev, dev_mark(dev, Q_PIPE));
	assert_true(after.finished && other.finished);
}

static void marks_of_computing_are_reached(void **state)
{
	struct item item = item_of(30, true);
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
	dev_post(dev, Q_COMPUTE, &item.work); /* computing goes on after it, so it ends at once */
	assert_int_equal(item.finished, 1);
}

/* A queue waits for another without holding the host, up to a number of such waits. */
static void a_queue_waits_for_another(void **state)
{
	struct item first = item_of(1, false), second = item_of(1, true);
	dev_post(dev, Q_PIPE, &first.work);
	dev_wait(dev, Q_TENSOR, dev_mark(dev, Q_PIPE));
	dev_post(dev, Q_TENSOR, &second.work);
	for (int i = 0; i < 10; i++)
		dev_mark(dev, Q_TENSOR);
	assert_int_equal(second.finished, 0);
	first.allowed = true;
	dev_finish(dev, dev_mark(dev, Q_TENSOR));
	assert_int_equal(first.finished, 1);
	assert_int_equal(second.finished, 2);
	for (int i = 0; i < 1000; i++) {
		struct item slow = item_of(3, true);
		dev_post(dev, Q_PIPE, &slow.work);
		dev_wait(dev, Q_TENSOR, dev_mark(dev, Q_PIPE));
		dev_finish(dev, dev_mark(dev, Q_PIPE));
	}
	dev_finish(dev, dev_mark(dev, Q_TENSOR));
}

static void copies_come_after_what_is_queued(void **state)
{
	float from[2] = {1, 2}, to[2] = {0, 0};
	struct item item = item_of(20, true);
	dev_post(dev, Q_COPY, &item.work);
	dev_read(dev, Q_COPY, to, tensor_1d(from, F32, 2));
	assert_int_equal(item.finished, 1);
	assert_memory_equal(to, from, sizeof to);
}

/* What a child prints to stderr before it ends with `code`. */
static void assert_dies(void (*act)(void), int code, const char *text)
{
	char said[512] = "";
	int ends[2], status;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], 2);
		act();
		_exit(0);
	}
	close(ends[1]);
	for (size_t at = 0; at < sizeof said - 1;) {
		ssize_t n = read(ends[0], said + at, sizeof said - 1 - at);
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	close(ends[0]);
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), code);
	if (!strstr(said, text))
		fail_msg("said \"%s\", should say \"%s\"", said, text);
}

static void wait_too_long(void)
{
	static struct item stuck, behind;
	stuck = item_of(1, false);
	behind = item_of(1, true);
	dev_set_timeout(dev, 0.05);
	dev_post(dev, Q_PIPE, &stuck.work);
	dev_wait(dev, Q_DATA, dev_mark(dev, Q_PIPE));
	behind.work.call = "all-gather";
	behind.work.group = "data";
	dev_post(dev, Q_DATA, &behind.work);
	dev_finish(dev, dev_mark(dev, Q_DATA));
}

/* The one named is the one that holds up, not the one that stands behind it. */
static void a_wait_has_a_limit(void **state)
{
	assert_dies(wait_too_long, CODE_PEER, "waited 0.05 s for all-reduce in group tensor");
}

static void memory_is_zero_and_aligned(void **state)
{
	static const size_t sizes[] = {1, 4096, 5000, (2u << 20) - 1, 2u << 20, (5u << 20) + 3};
	void *p[6];
	for (int i = 0; i < 6; i++) {
		struct error e;
		assert_true(dev_take(dev, &p[i], sizes[i], &e));
		assert_int_equal((uintptr_t)p[i] % (sizes[i] < 2u << 20 ? 4096 : 2u << 20), 0);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(((unsigned char *)p[i])[k], 0);
		memset(p[i], 0xff, sizes[i]);
	}
	for (int i = 5; i >= 0; i -= 2)
		dev_give_back(dev, p[i]);
}

static void memory_that_is_not_there_is_refused(void **state)
{
	void *p;
	struct error e;
	assert_false(dev_take(dev, &p, (size_t)1 << 46, &e));
	assert_int_equal(e.code, CODE_MACHINE);
	assert_non_null(strstr(e.text, "70368744177664 bytes"));
	assert_false(dev_take(dev, &p, SIZE_MAX, &e));
}

static void unknown_instructions_are_refused(void **state)
{
	struct dev_options options = {.threads = 1, .instructions = "mmx"};
	struct device *other;
	struct error e;
	assert_false(dev_open(&other, &backend_cpu, &options, &e));
	assert_non_null(strstr(e.text, "mmx"));
}

struct loop {
	atomic_int times[300];
	atomic_int busy[3]; /* by thread: two parts at once never have the same one */
};

static void count_part(void *context, int64_t part, int thread)
{
	struct loop *l = context;
	if (thread < 0 || thread > 2 || atomic_fetch_add(&l->busy[thread], 1) != 0)
		die(CODE_MACHINE, "thread %d runs two parts", thread);
	atomic_fetch_add(&l->times[part], 1);
	atomic_fetch_sub(&l->busy[thread], 1);
}

static void every_part_runs_once(void **state)
{
	for (int n = 0; n < 3000; n++) {
		static struct loop loop;
		int64_t parts = n % 300;
		memset(&loop, 0, sizeof loop);
		parallel(dev, parts, count_part, &loop);
		for (int64_t i = 0; i < 300; i++)
			if (loop.times[i] != (i < parts))
				fail_msg("loop %d: part %lld ran %d times", n, (long long)i, loop.times[i]);
	}
}

static void sleep_part(void *context, int64_t part, int thread)
{
	atomic_int *threads = context;
	usleep(20000);
	atomic_fetch_or(threads, 1 << thread);
}

static void all_threads_take_part(void **state)
{
	atomic_int threads = 0;
	usleep(1000); /* they sleep by now */
	parallel(dev, 12, sleep_part, &threads);
	assert_int_equal(threads, 7);
	assert_true(dev_peak_flops(dev, F64) * 2 == dev_peak_flops(dev, F16));
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DEVICE(work_of_a_queue_ends_in_order),
		WITH_DEVICE(a_mark_waits_for_what_was_before_it),
		WITH_DEVICE(marks_of_computing_are_reached),
		WITH_DEVICE(a_queue_waits_for_another),
		WITH_DEVICE(copies_come_after_what_is_queued),
		WITH_DEVICE(a_wait_has_a_limit),
		WITH_DEVICE(memory_is_zero_and_aligned),
		WITH_DEVICE(memory_that_is_not_there_is_refused),
		WITH_DEVICE(unknown_instructions_are_refused),
		WITH_DEVICE(every_part_runs_once),
		WITH_DEVICE(all_threads_take_part),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

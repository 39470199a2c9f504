#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "train/metrics.h"

static char dir[] = "/tmp/mtrain-metrics-XXXXXX";
static char path[sizeof dir + 32];

static int make_folder(void **state)
{
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
	return 0;
}

static int remove_folder(void **state)
{
	struct error e;
	return !file_remove_tree(dir, CODE_MACHINE, &e);
}

static struct metrics *opened(int64_t step)
{
	struct metrics *m;
	struct error e;
	if (!metrics_open(&m, dir, true, step, &e))
		fail_msg("%s", e.text);
	return m;
}

static void has(const char *expected)
{
	char *text;
	size_t n;
	struct error e;
	assert_true(file_read(path, &text, &n, CODE_MACHINE, &e));
	assert_string_equal(text, expected);
	free(text);
}

static void put(const char *text)
{
	struct error e;
	assert_true(file_replace(path, text, strlen(text), CODE_MACHINE, &e));
}

static void test_lines(void **state)
{
	struct metrics *m = opened(0);
	metrics_start(m, 4, "cpu (2 threads, \"avx512\")\n");
	metrics_step(m, &(struct metrics_step){
		.step = 1, .samples = 16, .tokens = 1024, .loss = 1.0 / 3.0, .grad_norm = 123456789.125, .lr = 6e-4,
		.loss_scale = 65536, .step_seconds = 0.5, .tokens_per_second = 2048, .tflops_per_device = 1e-3, .mfu = NAN,
		.memory_bytes = 1 << 20,
	});
	metrics_step(m, &(struct metrics_step){
		.step = 2, .samples = INT64_MAX, .loss = NAN, .grad_norm = INFINITY, .lr = -INFINITY, .skipped = true,
	});
	metrics_overflow(m, 2, 32768, "layers.3.mlp.up.weight");
	metrics_eval(m, 2, 2.0);
	metrics_eval(m, 2, 1e6);
	metrics_checkpoint(m, 2, NULL, 0.25);
	metrics_checkpoint(m, 2, "disk\tfull", 1);
	metrics_signal(m, 2, 10);
	metrics_resume(m, 2, "runs/a/checkpoints/step-00000002");
	metrics_end(m, 2, 75);
	metrics_close(m);
	has("{\"kind\":\"event\",\"step\":0,\"event\":\"start\",\"ranks\":4,\"device\":\"cpu (2 threads, \\\"avx512\\\")\\u000a\"}\n"
	    "{\"kind\":\"train\",\"step\":1,\"samples\":16,\"tokens\":1024,\"loss\":0.333333333,\"grad_norm\":123456789,"
	    "\"lr\":0.0006,\"loss_scale\":65536,\"skipped\":false,\"step_seconds\":0.5,\"tokens_per_second\":2048,"
	    "\"tflops_per_device\":0.001,\"mfu\":\"nan\",\"memory_bytes\":1048576}\n"
	    "{\"kind\":\"train\",\"step\":2,\"samples\":9223372036854775807,\"tokens\":0,\"loss\":\"nan\",\"grad_norm\":\"inf\","
	    "\"lr\":\"-inf\",\"loss_scale\":0,\"skipped\":true,\"step_seconds\":0,\"tokens_per_second\":0,"
	    "\"tflops_per_device\":0,\"mfu\":0,\"memory_bytes\":0}\n"
	    "{\"kind\":\"event\",\"step\":2,\"event\":\"overflow\",\"loss_scale\":32768,\"first\":\"layers.3.mlp.up.weight\"}\n"
	    "{\"kind\":\"eval\",\"step\":2,\"loss\":2,\"perplexity\":7.3890561}\n"
	    "{\"kind\":\"eval\",\"step\":2,\"loss\":1000000,\"perplexity\":\"inf\"}\n"
	    "{\"kind\":\"event\",\"step\":2,\"event\":\"checkpoint\",\"seconds\":0.25}\n"
	    "{\"kind\":\"event\",\"step\":2,\"event\":\"checkpoint\",\"seconds\":1,\"error\":\"disk\\u0009full\"}\n"
	    "{\"kind\":\"event\",\"step\":2,\"event\":\"signal\",\"signal\":10}\n"
	    "{\"kind\":\"event\",\"step\":2,\"event\":\"resume\",\"checkpoint\":\"runs/a/checkpoints/step-00000002\"}\n"
	    "{\"kind\":\"event\",\"step\":2,\"event\":\"end\",\"code\":75}\n");
}

#define LINE(step) "{\"kind\":\"train\",\"step\":" #step ",\"loss\":1}\n"

static void test_resume(void **state)
{
	static const struct {
		const char *before;
		int64_t step;
		const char *after;
	} cases[] = {
		{LINE(1) LINE(2) LINE(3), 2, LINE(1) LINE(2)},
		{LINE(1) LINE(2) LINE(2) LINE(3), 2, LINE(1) LINE(2) LINE(2)}, /* an eval at the same step stays */
		{LINE(1) LINE(2) LINE(3), 3, LINE(1) LINE(2) LINE(3)},
		{LINE(1) LINE(2) LINE(3), 9, LINE(1) LINE(2) LINE(3)},
		{LINE(1) LINE(2) LINE(3), 0, ""},
		{LINE(5) LINE(6), 2, ""},
		{LINE(1) LINE(2) "{\"kind\":\"train\",\"step\":2,", 2, LINE(1) LINE(2)}, /* torn */
		{LINE(1) LINE(2) "{\"kind\":\"train\",\"step\":2}", 2, LINE(1) LINE(2)}, /* torn of its newline alone */
		{LINE(1) LINE(2) "\n\n", 2, LINE(1) LINE(2)},
		{LINE(1) "{\"kind\":\"train\",\"step\":\n" LINE(3), 2, LINE(1)},
		{"{\"kin", 2, ""},
		{"", 2, ""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		put(cases[i].before);
		metrics_close(opened(cases[i].step));
		has(cases[i].after);
	}
	unlink(path);
	struct metrics *m = opened(7); /* nothing there: begins */
	metrics_signal(m, 7, 1);
	metrics_close(m);
	has("{\"kind\":\"event\",\"step\":7,\"event\":\"signal\",\"signal\":1}\n");
}

static void test_none(void **state)
{
	struct metrics *m;
	struct error e;
	unlink(path);
	assert_true(metrics_open(&m, dir, false, 0, &e));
	metrics_eval(m, 1, 1);
	metrics_close(m);
	assert_false(file_exists(path));
	metrics_eval(NULL, 1, 1);
	metrics_close(NULL);

	assert_false(metrics_open(&m, "/no/such/folder", true, 0, &e));
	assert_int_equal(e.code, CODE_MACHINE);
	assert_string_equal(e.text, "/no/such/folder/metrics.jsonl: No such file or directory");
	assert_null(m);
}

/* When the disk is full, the line that did not fit leaves nothing, and what fits later is whole. */
static void test_full(void **state)
{
	struct rlimit before, less;
	unlink(path);
	struct metrics *m = opened(0);
	metrics_signal(m, 1, 1);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	less = (struct rlimit){70, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
	freopen("/dev/null", "w", stderr); /* the warning */
	metrics_signal(m, 2, 1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	metrics_signal(m, 3, 1);
	metrics_close(m);
	has("{\"kind\":\"event\",\"step\":1,\"event\":\"signal\",\"signal\":1}\n"
	    "{\"kind\":\"event\",\"step\":3,\"event\":\"signal\",\"signal\":1}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines), cmocka_unit_test(test_resume), cmocka_unit_test(test_none),
		cmocka_unit_test(test_full),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* A backend's column of ops against the plain one: every op, type, variant and a list of odd sizes.
 *
 * With R the plain op on FP64 storage of the same values, P the plain op in the type, X the column in the type:
 * max|X − R| ≤ 2·max|P − R| + 1e-6·max|R| for each tensor that the op writes. X is run twice and with two threads for the
 * same bits, and at an address that is aligned to the element only. Arguments: a set of instructions (the
 * best is taken if none is named); `--bench [THREADS]` times instead of checking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cases.h"
#include "compare.h"
#include "dev/cpu/cpu.h"

static const struct backend *const tested = &backend_cpu;
static const char *column; /* the best, or a set of instructions that is named */
static const enum dtype types[] = {F64, F32, BF16, F16};
enum { TYPES = sizeof types / sizeof *types };

static struct bench plain, one_thread, two_threads;

static void same_bits(struct bench *b, struct call *x, const char *what)
{
	size_t bytes = x->image_bytes;
	unsigned char *first = malloc(bytes);
	struct scalars scalars = x->scalars_after;
	memcpy(first, x->image, bytes);
	call_run(b, x, 0);
	if (memcmp(first, x->image, bytes) != 0 || memcmp(&scalars, &x->scalars_after, sizeof scalars) != 0)
		fail_msg("%s: %s gives other bits", x->text, what);
	free(first);
}

static void check_case(const struct op_cases *cases, int size, unsigned variant, enum dtype type)
{
	struct call r, p, x;
	if (!case_taken(cases, size, variant) || !case_build(&r, cases->build, F64, type, cases->sizes[size], variant))
		return;
	case_build(&p, cases->build, type, type, cases->sizes[size], variant);
	case_build(&x, cases->build, type, type, cases->sizes[size], variant);
	snprintf(x.text, sizeof x.text, "%s %s size %d variant %u", cases->name, dtype_name(type), size, variant);
	memcpy(p.text, x.text, sizeof p.text);
	memcpy(r.text, x.text, sizeof r.text);
	call_run(&plain, &r, 0);
	call_run(&plain, &p, 0);
	call_run(&one_thread, &x, 1);
	compare_calls(&x, &p, &r);
	call_run(&one_thread, &x, 0);
	compare_calls(&x, &p, &r);
	same_bits(&one_thread, &x, "a second run");
	same_bits(&two_threads, &x, "a second thread");
	call_finish(&r);
	call_finish(&p);
	call_finish(&x);
}

static void check_op(void **state)
{
	const struct op_cases *cases = *state;
	for (int t = 0; t < TYPES; t++)
		for (int size = 0; size < (types[t] == F64 ? 3 : cases->size_count); size++)
			for (unsigned variant = 0; variant < cases->variants; variant++)
				check_case(cases, size, variant, types[t]);
}

static int time_ops(int threads)
{
	bench_open(&one_thread, tested, column, threads);
	printf("%s against plain\n%-20s %-5s %12s %12s %8s\n", dev_name(one_thread.dev), "op", "type", "plain ms", "column ms",
	       "ratio");
	for (int i = 0; i < op_cases_count; i++)
		for (int t = 1; t < TYPES; t++) {
			const struct op_cases *cases = &op_cases[i];
			struct call c;
			case_build(&c, cases->build, types[t], types[t], cases->bench, cases->bench_variant);
			double slow = call_time(&plain, &c, 1);
			double once = call_time(&one_thread, &c, 1);
			double fast = call_time(&one_thread, &c, once > 0.1 ? 1 : (int)(0.1 / (once + 1e-6)) + 1);
			printf("%-20s %-5s %12.3f %12.4f %8.1f", cases->name, dtype_name(types[t]), 1e3 * slow, 1e3 * fast,
			       slow / fast);
			if (cases->bench_flops > 0)
				printf(" %8.1f GFLOP/s", 1e-9 * cases->bench_flops / fast);
			putchar('\n');
			fflush(stdout);
			call_finish(&c);
		}
	bench_close(&one_thread);
	return 0;
}

/* Whether the named set of instructions is to be had here. */
static bool present(void)
{
	struct dev_options options = {.threads = 1, .instructions = column};
	struct device *dev;
	struct error e;
	if (!dev_open(&dev, tested, &options, &e))
		return false;
	dev_close(dev);
	return true;
}

int main(int argc, char **argv)
{
	bool bench = false;
	int failed, threads = 1;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--bench") == 0)
			bench = true;
		else if (atoi(argv[i]) > 0)
			threads = atoi(argv[i]);
		else
			column = argv[i];
	if (!present())
		return 77; /* skipped */
	bench_open(&plain, &backend_cpu, "plain", 1);
	if (bench) {
		failed = time_ops(threads);
	} else {
		struct CMUnitTest *tests = calloc((size_t)op_cases_count, sizeof *tests);
		for (int i = 0; i < op_cases_count; i++)
			tests[i] = (struct CMUnitTest){op_cases[i].name, check_op, NULL, NULL, (void *)(uintptr_t)&op_cases[i]};
		bench_open(&one_thread, tested, column, 1);
		bench_open(&two_threads, tested, column, 2);
		failed = _cmocka_run_group_tests("columns", tests, (size_t)op_cases_count, NULL, NULL);
		bench_close(&two_threads);
		bench_close(&one_thread);
		free(tests);
	}
	bench_close(&plain);
	return failed;
}

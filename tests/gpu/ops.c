/* Every op on a card against the plain column: each variant, size and type of the ops' table, inputs that are random, zero,
 * tiny and large, tensors aligned to 16 bytes and to their element only, guard bands and NaN-poisoned outputs, twice for the
 * same bits.
 *
 * Usage: gpu-ops [--json FILE] [--small] [OP...]. --small: the first sizes alone, as an emulator needs it. A line for each op
 * and type; exit code 1 if anything failed. */
#include "check.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends.h"
#include "cases.h"
#include "compare.h"
#include "dev/cpu/cpu.h"

enum inputs { RANDOM, ZERO, TINY, LARGE, INPUTS };
static const double factors[INPUTS] = {1, 0, 1e-6, 12};
static const char *const input_names[INPUTS] = {"random", "zero", "tiny", "large"};
static const enum dtype types[] = {F32, BF16, F16};
enum { TYPES = sizeof types / sizeof *types };

/* Shapes that only a card is asked for: rows and heads as models have them. */
static const int64_t attention_sizes[][SIZE_DIMS] = {
	{2, 515, 2, 2, 64}, {1, 258, 1, 3, 80}, {1, 387, 2, 1, 96}, {2, 640, 1, 4, 128}, {1, 1030, 1, 1, 128}, {1, 200, 1, 2, 256},
};
static const int64_t row_sizes[][SIZE_DIMS] = {{515, 768}, {130, 2048}, {64, 5120}, {33, 12288}, {70, 50304}};

static struct bench plain, card;
static bool small;

/* What ops keep their numbers in is scaled; indices and statistics of other ops stay. Those of a softmax belong to their
 * scores: larger scores would overflow in any arithmetic, so large inputs are not for ops that are given them. */
static bool build(struct call *c, const struct op_cases *cases, enum dtype storage, enum dtype grid, const int64_t *size,
		  unsigned variant, enum inputs inputs)
{
	if (!case_build(c, cases->build, storage, grid, size, variant))
		return false;
	struct arg *lse = call_find(c, "lse");
	if (inputs == LARGE && lse && lse->role == IN) {
		call_finish(c);
		return false;
	}
	for (int i = 0; i < c->count && inputs != RANDOM; i++) {
		struct arg *a = &c->args[i];
		for (int64_t k = 0; a->values && a->kind == KIND_T && k < a->count; k++)
			a->values[k] *= factors[inputs];
	}
	call_round(c);
	return true;
}

static bool compare_all(const struct op_cases *cases, const int64_t *size, unsigned variant, enum dtype type, enum inputs inputs)
{
	struct call r, p, x;
	unsigned char *first;
	if (!build(&r, cases, F64, type, size, variant, inputs))
		return false;
	build(&p, cases, type, type, size, variant, inputs);
	build(&x, cases, type, type, size, variant, inputs);
	snprintf(x.text, sizeof x.text, "%s %s [%lld %lld %lld %lld %lld] variant %u %s", cases->name, dtype_name(type),
		 (long long)size[0], (long long)size[1], (long long)size[2], (long long)size[3], (long long)size[4], variant,
		 input_names[inputs]);
	call_run(&plain, &r, 0);
	call_run(&plain, &p, 0);
	for (int skew = 0; skew < 2; skew++) {
		call_run(&card, &x, skew);
		compare_calls(&x, &p, &r);
		size_t bytes = x.image_bytes;
		first = malloc(bytes);
		memcpy(first, x.image, bytes);
		call_run(&card, &x, skew);
		bool same = memcmp(first, x.image, bytes) == 0;
		free(first);
		if (!same)
			fail_msg("%s: a second run gives other bits", x.text);
	}
	call_finish(&r);
	call_finish(&p);
	call_finish(&x);
	return true;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct tally {
	int checks, failed;
};

/* One check of its own: a failure ends it and counts. */
static void check_one(struct tally *t, const struct op_cases *cases, const int64_t *size, unsigned variant, enum dtype type,
		      enum inputs inputs)
{
	if (CHECK_BEGIN()) {
		t->failed++;
		t->checks++;
		return;
	}
	t->checks += compare_all(cases, size, variant, type, inputs);
	CHECK_END();
}

/* Sizes beyond the table's, where the op has rows, heads or lists that models make large. */
static int more_sizes(const struct op_cases *cases, const int64_t (**sizes)[SIZE_DIMS])
{
	bool attention = strncmp(cases->name, "attention", 9) == 0;
	bool rows = strncmp(cases->name, "norm", 4) == 0 || strncmp(cases->name, "gelu", 4) == 0 ||
		    strncmp(cases->name, "swiglu", 6) == 0 || strncmp(cases->name, "bias", 4) == 0 || strncmp(cases->name, "loss_s", 6) == 0 ||
		    strncmp(cases->name, "loss_b", 6) == 0;
	*sizes = attention ? attention_sizes : row_sizes;
	if (small)
		return 0;
	return attention ? sizeof attention_sizes / sizeof *attention_sizes : rows ? sizeof row_sizes / sizeof *row_sizes : 0;
}

static struct tally check_op(const struct op_cases *cases, enum dtype type)
{
	struct tally t = {0};
	const int64_t (*more)[SIZE_DIMS];
	int count = more_sizes(cases, &more), table = small && cases->size_count > 3 ? 3 : cases->size_count;
	for (unsigned variant = 0; variant < cases->variants; variant++) {
		for (int i = 0; i < table; i++)
			for (enum inputs in = RANDOM; in < INPUTS; in++)
				if (in == RANDOM ? case_taken(cases, i, variant) && (!small || variant % 4 == (unsigned)i % 4) : i == 2)
					check_one(&t, cases, cases->sizes[i], variant, type, in);
		for (int i = 0; i < count; i++)
			if (variant < 2 || variant + 1 == cases->variants)
				check_one(&t, cases, more[i], variant, type, RANDOM);
	}
	return t;
}

static bool wanted(const char *name, int argc, char **argv)
{
	bool any = false;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			i++;
		else if (argv[i][0] != '-') {
			any = true;
			if (strcmp(argv[i], name) == 0)
				return true;
		}
	}
	return !any;
}

static bool open_devices(void)
{
	if (CHECK_BEGIN())
		return false;
	bench_open(&plain, &backend_cpu, "plain", 1);
	bench_open(&card, backends[0], NULL, 1);
	CHECK_END();
	return true;
}

int main(int argc, char **argv)
{
	FILE *json = NULL;
	struct tally all = {0};
	const char *comma = "";
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
			json = fopen(argv[i + 1], "w");
		small = small || strcmp(argv[i], "--small") == 0;
	}
	if (!open_devices())
		return 1;
	printf("%s\n", dev_name(card.dev));
	if (json)
		fprintf(json, "{\"device\": \"%s\", \"ops\": [", dev_name(card.dev));
	for (int i = 0; i < op_cases_count; i++) {
		for (int t = 0; t < TYPES && wanted(op_cases[i].name, argc, argv); t++) {
			double begin = now();
			struct tally got = check_op(&op_cases[i], types[t]);
			printf("%s %-20s %s  %4d checks, %d failed, %.1f s\n", got.failed ? "FAIL" : "ok  ", op_cases[i].name,
			       dtype_name(types[t]), got.checks, got.failed, now() - begin);
			fflush(stdout);
			if (json)
				fprintf(json, "%s\n {\"op\": \"%s\", \"dtype\": \"%s\", \"checks\": %d, \"failed\": %d, \"seconds\": %.3f}",
					comma, op_cases[i].name, dtype_name(types[t]), got.checks, got.failed, now() - begin);
			comma = ",";
			all.checks += got.checks;
			all.failed += got.failed;
		}
	}
	if (json) {
		fprintf(json, "\n], \"checks\": %d, \"failed\": %d}\n", all.checks, all.failed);
		if (fclose(json) != 0)
			return 1;
	}
	printf("%d checks, %d failed\n", all.checks, all.failed);
	bench_close(&card);
	bench_close(&plain);
	return all.failed || all.checks == 0;
}

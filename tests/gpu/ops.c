/* Every op on a card against the plain column: each variant, size and type of the ops' table, inputs that are random, zero,
 * tiny and large, tensors aligned to 16 bytes and to their element only, guard bands and NaN-poisoned outputs, twice for the
 * same bits. Then attention once more by another library, in the sizes in which the device takes one.
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

static struct bench plain, card, chooser;
static struct bench *checked = &card;
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
		call_run(checked, &x, skew);
		compare_calls(&x, &p, &r);
		size_t bytes = x.image_bytes;
		first = malloc(bytes);
		memcpy(first, x.image, bytes);
		call_run(checked, &x, skew);
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

/* Whether the device that is checked has another library compute attention of this size, after the call whose backward it was
 * shown. What it refuses is told. */
static bool chosen_other(const int64_t *size, enum dtype type)
{
	struct tuning chosen = {0};
	char shape[64];
	bool other = false;
	snprintf(shape, sizeof shape, "attention %s %lldx%lld heads %lldx%lld of %lld ", dtype_name(type), (long long)size[0],
		 (long long)size[1], (long long)size[2], (long long)size[3], (long long)size[4]);
	dev_choose(checked->dev, &chosen, false);
	for (int i = 0; i < chosen.count; i++) {
		const char *found = strstr(chosen.list[i].key, shape);
		if (found == chosen.list[i].key)
			other = strcmp(chosen.list[i].value, "own") != 0;
		else if (found)
			printf("%s: %s\n", chosen.list[i].key, chosen.list[i].value);
	}
	tuning_finish(&chosen);
	return other;
}

static void show(const struct op_cases *backward, const int64_t *size, enum dtype type)
{
	struct call c;
	if (!build(&c, backward, type, type, size, 0, RANDOM))
		return;
	call_run(checked, &c, 0);
	call_finish(&c);
}

static bool show_one(const struct op_cases *backward, const int64_t *size, enum dtype type)
{
	if (CHECK_BEGIN())
		return false;
	show(backward, size, type);
	CHECK_END();
	return true;
}

/* Attention by another library where there is one that agrees with ours, on a device of its own, which chooses at each size. */
static struct tally check_other(const struct op_cases *cases, const struct op_cases *backward, enum dtype type)
{
	struct tally t = {0};
	checked = &chooser;
	for (size_t i = 0; i < sizeof attention_sizes / sizeof *attention_sizes; i++) {
		if (!show_one(backward, attention_sizes[i], type)) {
			t.failed++;
			t.checks++;
			continue;
		}
		if (chosen_other(attention_sizes[i], type))
			check_one(&t, cases, attention_sizes[i], 0, type, RANDOM);
	}
	checked = &card;
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
	bench_open(&chooser, backends[0], NULL, 1);
	CHECK_END();
	return true;
}

static struct tally all;
static FILE *json;
static const char *comma = "";

/* A line of the table, and an object of the JSON. */
static void tell(const char *name, const char *more, enum dtype type, struct tally got, double seconds)
{
	char op[64];
	snprintf(op, sizeof op, "%s%s", name, more);
	printf("%s %-20s %s  %4d checks, %d failed, %.1f s\n", got.failed ? "FAIL" : "ok  ", op, dtype_name(type), got.checks,
	       got.failed, seconds);
	fflush(stdout);
	if (json)
		fprintf(json, "%s\n {\"op\": \"%s\", \"dtype\": \"%s\", \"checks\": %d, \"failed\": %d, \"seconds\": %.3f}",
			comma, op, dtype_name(type), got.checks, got.failed, seconds);
	comma = ",";
	all.checks += got.checks;
	all.failed += got.failed;
}

static const struct op_cases *find(const char *name)
{
	for (int i = 0; i < op_cases_count; i++)
		if (strcmp(op_cases[i].name, name) == 0)
			return &op_cases[i];
	check(false);
	return NULL;
}

int main(int argc, char **argv)
{
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
	for (int i = 0; i < op_cases_count; i++)
		for (int t = 0; t < TYPES && wanted(op_cases[i].name, argc, argv); t++) {
			double begin = now();
			tell(op_cases[i].name, "", types[t], check_op(&op_cases[i], types[t]), now() - begin);
		}
	const struct op_cases *backward = find("attention_backward"), *both[] = {find("attention_forward"), backward};
	for (int i = 0; i < 2 && !small; i++)
		for (int t = 0; t < TYPES && wanted(both[i]->name, argc, argv); t++) {
			double begin = now();
			struct tally got = check_other(both[i], backward, types[t]);
			if (got.checks > 0)
				tell(both[i]->name, "_other", types[t], got, now() - begin);
		}
	if (json) {
		fprintf(json, "\n], \"checks\": %d, \"failed\": %d}\n", all.checks, all.failed);
		if (fclose(json) != 0)
			return 1;
	}
	printf("%d checks, %d failed\n", all.checks, all.failed);
	bench_close(&chooser);
	bench_close(&card);
	bench_close(&plain);
	return all.failed || all.checks == 0;
}

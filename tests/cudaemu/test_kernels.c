/* Every CUDA kernel, run by the emulator, against the plain column of ops: the rule of compare.h, on tensors that are
 * aligned to 16 bytes and on tensors that are aligned to their element only, with blocks and threads in both orders for
 * the same bits. While a kernel runs only the call's tensors can be touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "card.h"
#include "cases.h"
#include "compare.h"
#include "dev/cpu/cpu.h"
#include "emu.h"

static const enum dtype types[] = {F32, BF16, F16};
enum { TYPES = sizeof types / sizeof *types };

static struct bench plain, forwards, backwards;
static void (*invoke)(struct device *dev, const struct call *c);

/* Hides the block that holds the call's tensors, but not the tensors, while the op runs. */
static void invoke_watched(struct device *dev, const struct call *c)
{
	struct bench *b = dev == forwards.dev ? &forwards : &backwards;
	emu_show(b->memory, b->room, false);
	for (int i = 0; i < c->count; i++)
		emu_show(c->args[i].at->data, tensor_bytes(*c->args[i].at), true);
	invoke(dev, c);
	emu_show(b->memory, b->room, true);
}

static void same_bits(struct call *x)
{
	size_t bytes = x->image_bytes;
	unsigned char *first = malloc(bytes);
	struct scalars scalars = x->scalars_after;
	memcpy(first, x->image, bytes);
	call_run(&backwards, x, 0);
	if (memcmp(first, x->image, bytes) != 0 || memcmp(&scalars, &x->scalars_after, sizeof scalars) != 0)
		fail_msg("%s: blocks and threads in the other order give other bits", x->text);
	free(first);
}

static void check_case(const char *name, builder *build, const int64_t *size, unsigned variant, enum dtype type)
{
	struct call r, p, x;
	if (!case_build(&r, build, F64, type, size, variant))
		return;
	case_build(&p, build, type, type, size, variant);
	case_build(&x, build, type, type, size, variant);
	snprintf(x.text, sizeof x.text, "%s %s [%lld %lld %lld %lld %lld] variant %u", name, dtype_name(type), (long long)size[0],
		 (long long)size[1], (long long)size[2], (long long)size[3], (long long)size[4], variant);
	memcpy(p.text, x.text, sizeof p.text);
	memcpy(r.text, x.text, sizeof r.text);
	invoke = x.invoke;
	x.invoke = invoke_watched;
	call_run(&plain, &r, 0);
	call_run(&plain, &p, 0);
	call_run(&forwards, &x, 1);
	compare_calls(&x, &p, &r);
	call_run(&forwards, &x, 0);
	compare_calls(&x, &p, &r);
	same_bits(&x);
	call_finish(&r);
	call_finish(&p);
	call_finish(&x);
}

/* Attention in parts has many variants, and emulated they take minutes: a third of them, in turn, or all in the sweep. */
static bool sampled(size_t number)
{
	return number % 3 == 0 || getenv("MTRAIN_SWEEP");
}

static void check_op(void **state)
{
	const struct op_cases *cases = *state;
	bool all = strncmp(cases->name, "attention_part", 14) != 0;
	for (int t = 0; t < TYPES; t++)
		for (int size = 0; size < cases->size_count; size++)
			for (unsigned variant = 0; variant < cases->variants; variant++)
				if (case_taken(cases, size, variant) && (all || sampled(variant + (size_t)(size + t))))
					check_case(cases->name, cases->build, cases->sizes[size], variant, types[t]);
}

/* Shapes that reach all head sizes of the tensor-core kernels, several blocks of queries and keys, ends inside a block,
 * heads in groups, and both ways of drawing masks (a sequence that four divides, and one that it does not). */
static void check_attention(void **state)
{
	static const int64_t sizes[][SIZE_DIMS] = {{1, 132, 1, 1, 64}, {1, 131, 1, 2, 80}, {2, 33, 1, 1, 96}, {1, 72, 2, 2, 128}};
	(void)state;
	for (int t = 1; t < TYPES; t++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			for (unsigned variant = 0; variant < ATTENTION_VARIANTS; variant++) {
				check_case("attention_forward", case_attention_forward, sizes[i], variant, types[t]);
				check_case("attention_backward", case_attention_backward, sizes[i], variant, types[t]);
			}
}

/* Parts of the same kind: blocks that some queries see and others do not, stretches that end inside a block, draws of masks
 * that four neighbours share and such that they cannot. */
static void check_parts(void **state)
{
	static const int64_t sizes[][SIZE_DIMS] = {{1, 136, 1, 1, 64}, {1, 132, 1, 2, 64}, {1, 131, 1, 2, 80}, {2, 34, 1, 1, 96}, {1, 72, 2, 2, 128}};
	(void)state;
	for (int t = 1; t < TYPES; t++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			for (unsigned variant = 0; variant < 2 * PART_FRESH; variant++) {
				if (!sampled(variant / 2 + i + (size_t)t))
					continue;
				check_case("attention_part_forward", case_attention_part_forward, sizes[i], variant, types[t]);
				if (variant < PART_FRESH)
					check_case("attention_part_backward", case_attention_part_backward, sizes[i], variant, types[t]);
			}
}

int main(int argc, char **argv)
{
	struct CMUnitTest *tests = calloc((size_t)op_cases_count + 2, sizeof *tests);
	size_t count = 0;
	for (int i = 0; i < op_cases_count; i++) {
		if (strcmp(op_cases[i].name, "gemm") != 0 && (argc < 2 || strcmp(argv[1], op_cases[i].name) == 0))
			tests[count++] = (struct CMUnitTest){op_cases[i].name, check_op, NULL, NULL, (void *)(uintptr_t)&op_cases[i]};
	}
	if (argc < 2 || strcmp(argv[1], "attention") == 0)
		tests[count++] = (struct CMUnitTest)cmocka_unit_test(check_attention);
	if (argc < 2 || strcmp(argv[1], "parts") == 0)
		tests[count++] = (struct CMUnitTest)cmocka_unit_test(check_parts);
	bench_open(&plain, &backend_cpu, "plain", 1);
	bench_open(&forwards, &backend_card, NULL, 1);
	bench_open(&backwards, &backend_card, NULL, 2);
	int failed = _cmocka_run_group_tests("kernels", tests, count, NULL, NULL);
	bench_close(&backwards);
	bench_close(&forwards);
	bench_close(&plain);
	free(tests);
	return failed;
}

/* Wrong calls end the run with a message that names the op: each tensor of each op in turn gets a wrong type, a wrong
 * number of dimensions, an address off its alignment, and memory shared with what the op reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cases.h"
#include "dev/cpu/cpu.h"

static struct bench bench;

/* Makes the call in a child; *text: what it said. Gives its exit code. */
static int outcome(struct call *c, char *text, size_t room)
{
	int ends[2], status;
	fflush(NULL);
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		c->invoke(bench.dev, c);
		_exit(0);
	}
	close(ends[1]);
	size_t n = 0;
	for (ssize_t got; (got = read(ends[0], text + n, room - 1 - n)) > 0;)
		n += (size_t)got;
	text[n] = 0;
	close(ends[0]);
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_refused(struct call *c, const char *op, const char *wrong)
{
	char text[2048], start[64];
	int code = outcome(c, text, sizeof text);
	snprintf(start, sizeof start, "mtrain: %s: ", op);
	if (code != CODE_MACHINE || strncmp(text, start, strlen(start)) != 0)
		fail_msg("%s with %s: exit %d, says \"%s\"", op, wrong, code, text);
}

static void check_tensor(struct call *c, const char *op, struct arg *a)
{
	struct tensor right = *a->at;
	char wrong[96];

	a->at->dtype = right.dtype == I32 ? I64 : I32;
	snprintf(wrong, sizeof wrong, "%s of the wrong type", a->name);
	expect_refused(c, op, wrong);
	*a->at = right;

	bool any_shape = strcmp(op, "square_sums") == 0 && a->role == IN;
	if (!any_shape) {
		a->at->dims += a->at->dims < TENSOR_DIMS ? 1 : -1;
		snprintf(wrong, sizeof wrong, "%s of the wrong shape", a->name);
		expect_refused(c, op, wrong);
		*a->at = right;
	}

	a->at->data = (char *)right.data + 1;
	snprintf(wrong, sizeof wrong, "%s not aligned", a->name);
	expect_refused(c, op, wrong);
	*a->at = right;

	for (int i = 0; a->role != IN && i < c->count; i++) {
		struct arg *other = &c->args[i];
		bool other_item = strcmp(op, "adamw") == 0 && i / 5 != (a - c->args) / 5;
		if (other == a || other_item || tensor_bytes(*other->at) <= 8)
			continue;
		a->at->data = (char *)other->at->data + 8;
		snprintf(wrong, sizeof wrong, "%s inside %s", a->name, other->name);
		expect_refused(c, op, wrong);
		*a->at = right;
	}
}

static void check_op(void **state)
{
	const struct op_cases *cases = *state;
	static const unsigned gelu = GEMM_STEP * GEMM_CASE_TANH, norm = RESIDUAL_BIAS | RESIDUAL_NORM;
	struct call c;
	unsigned variant = cases->build == case_gemm ? gelu : cases->build == case_residual_forward ? norm : 0;
	variant |= cases->build == case_norm_backward ? NORM_RESIDUAL : 0;
	variant |= cases->build == case_position_forward || cases->build == case_position_backward ? POSITION_TABLE : 0;
	variant |= cases->build == case_residual_backward ? RESIDUAL_BIAS : 0;
	char text[2048];
	assert_true(case_build(&c, cases->build, F32, F32, cases->sizes[2], variant));
	call_run(&bench, &c, 0);
	assert_int_equal(outcome(&c, text, sizeof text), 0);
	for (int i = 0; i < c.count; i++)
		check_tensor(&c, cases->name, &c.args[i]);
	call_finish(&c);
}

static void expect_message(struct call *c, const char *message)
{
	char text[2048];
	assert_int_equal(outcome(c, text, sizeof text), CODE_MACHINE);
	assert_string_equal(text, message);
}

static void check_messages(void **state)
{
	struct call c;
	case_build(&c, case_gemm, F16, F16, (int64_t[SIZE_DIMS]){3, 7, 5}, 0);
	call_run(&bench, &c, 0);
	c.op.gemm.out.shape[1] = 4;
	expect_message(&c, "mtrain: gemm: out is fp16 [3, 4], should be fp16 [3, 5]\n");
	c.op.gemm.out.dims = 0;
	expect_message(&c, "mtrain: gemm: out is left out, should be fp16 [3, 5]\n");
	call_finish(&c);
	case_build(&c, case_bias_backward, F32, F32, (int64_t[SIZE_DIMS]){1025, 1}, 0);
	bench.dev->limits.rows = 0; /* no limit */
	call_run(&bench, &c, 0);
	bench.dev->limits.rows = 1024;
	expect_message(&c, "mtrain: bias_backward: 1025 rows, the device was opened for 1024\n");
	call_finish(&c);
	case_build(&c, case_position_forward, F32, F32, (int64_t[SIZE_DIMS]){2, 3, 4}, POSITION_DROPOUT);
	call_run(&bench, &c, 0);
	c.op.position_forward.dropout.rate = 1;
	expect_message(&c, "mtrain: position_forward: dropout rate is 1, should be in [0, 1)\n");
	c.op.position_forward.dropout.rate = 0.5;
	c.op.position_forward.dropout.span.row = -1;
	expect_message(&c, "mtrain: position_forward: a span of length 3 begins at row -1\n");
	c.op.position_forward.dropout.span.row = 1;
	c.op.position_forward.dropout.span.stride = 1;
	expect_message(&c, "mtrain: position_forward: a span's pieces of 2 rows are 1 rows apart\n");
	c.op.position_forward.dropout.span.stride = 7;
	c.op.position_forward.dropout.span.jump = 2;
	expect_message(&c, "mtrain: position_forward: a span of length 3 has no halves 2 tokens apart\n");
	call_finish(&c);
}

int main(void)
{
	struct CMUnitTest *tests = calloc((size_t)op_cases_count + 1, sizeof *tests);
	for (int i = 0; i < op_cases_count; i++)
		tests[i] = (struct CMUnitTest){op_cases[i].name, check_op, NULL, NULL, (void *)(uintptr_t)&op_cases[i]};
	tests[op_cases_count] = (struct CMUnitTest)cmocka_unit_test(check_messages);
	bench_open(&bench, &backend_cpu, "plain", 1);
	int failed = _cmocka_run_group_tests("checks", tests, (size_t)op_cases_count + 1, NULL, NULL);
	bench_close(&bench);
	free(tests);
	return failed;
}

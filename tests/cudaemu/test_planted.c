/* The emulator's checks catch what they are there for: each planted bug ends the process with its own cause, and the
 * right kernel runs in either order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "emu.h"
#include "planted.h"

enum { COUNT = 99, RIGHT = 7, WRONG_SUM = 8, NOT_WRITTEN = 9 };

static int run_here(enum planted_bug bug)
{
	float *in = emu_take(COUNT * sizeof *in), *out = emu_take(COUNT * sizeof *out), want = 0;
	for (int i = 0; i < COUNT; i++) {
		in[i] = (float)i;
		want += in[i];
	}
	planted_run(bug, out, in, COUNT);
	for (int i = 0; i < COUNT; i++) {
		if (isnan(out[i]))
			return NOT_WRITTEN;
		if (out[i] != want)
			return WRONG_SUM;
	}
	emu_give_back(in);
	emu_give_back(out);
	return RIGHT;
}

/* Runs the kernel in a process of its own; its exit code, and what it said on stderr. */
static int run_apart(enum planted_bug bug, bool backwards, char *said, size_t room)
{
	int ends[2], status;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		emu_set_backwards(backwards);
		_Exit(run_here(bug));
	}
	close(ends[1]);
	size_t used = 0;
	ssize_t n;
	while (used < room - 1 && (n = read(ends[0], said + used, room - 1 - used)) > 0)
		used += (size_t)n;
	said[used] = 0;
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const struct {
	enum planted_bug bug;
	int code;
	const char *cause;
	bool access; /* seen only where accesses are checked; AddressSanitizer has words of its own */
} planted[] = {
	{PLANTED_MISSING_BARRIER, EMU_FAULT, "with no barrier since", true},
	{PLANTED_MISSING_WARP_BARRIER, EMU_FAULT, "with no barrier since", true},
	{PLANTED_WRITE_BEFORE_READ, EMU_FAULT, "with no barrier since", true},
	{PLANTED_DIVERGENT_BARRIER, EMU_FAULT, "32 of 128 threads have ended without it", false},
	{PLANTED_BARRIER_PLACES, EMU_FAULT, "barrier: it waits at line", false},
	{PLANTED_WRONG_MASK, EMU_FAULT, "with mask ffffffff", false},
	{PLANTED_MASK_WITHOUT_SELF, EMU_FAULT, "leaves out lane", false},
	{PLANTED_SOURCE_OUTSIDE, EMU_FAULT, "which the mask 0000ffff leaves out", false},
	{PLANTED_TAIL_READ, EMU_FAULT, "device memory: read of 4 bytes", true},
	{PLANTED_TAIL_WRITE, EMU_FAULT, "device memory: write of 4 bytes", true},
	{PLANTED_SHARED_OUTSIDE, EMU_FAULT, "shared memory: read of 4 bytes outside of an array", true},
	{PLANTED_SHARED_UNWRITTEN, EMU_FAULT, "read of what no thread has written", true},
	{PLANTED_MISALIGNED, EMU_FAULT, "not a multiple of it", true},
	{PLANTED_HOST_MEMORY, EMU_FAULT, "host memory", true},
	{PLANTED_COPY_NOT_AWAITED, EMU_FAULT, "read of what no thread has written", true},
	{PLANTED_ACCUMULATOR, WRONG_SUM, "", false},
	{PLANTED_OUTPUT_LEFT_OUT, NOT_WRITTEN, "", false},
};

static void bugs_are_caught(void **state)
{
	(void)state;
	char said[4096];
	for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
		if (planted[i].access && !emu_checks_accesses())
			continue;
		for (int backwards = 0; backwards < 2; backwards++) {
			int code = run_apart(planted[i].bug, backwards, said, sizeof said);
			if (code != planted[i].code || !strstr(said, planted[i].cause))
				fail_msg("bug %d: exit %d (should be %d), said \"%s\" (should say \"%s\")", (int)planted[i].bug, code,
					 planted[i].code, said, planted[i].cause);
		}
	}
}

/* Under AddressSanitizer the process ends with its report. */
static void sanitizer_sees_edges(void **state)
{
	(void)state;
	static const enum planted_bug outside[] = {PLANTED_TAIL_READ, PLANTED_TAIL_WRITE, PLANTED_SHARED_OUTSIDE};
	char said[16384];
	if (emu_checks_accesses())
		skip();
	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
		run_apart(outside[i], false, said, sizeof said);
		if (!strstr(said, "use-after-poison"))
			fail_msg("bug %d: said \"%s\"", (int)outside[i], said);
	}
}

static void right_kernel_runs(void **state)
{
	(void)state;
	char said[4096];
	for (int backwards = 0; backwards < 2; backwards++) {
		int code = run_apart(PLANTED_NONE, backwards, said, sizeof said);
		if (code != RIGHT)
			fail_msg("exit %d, said \"%s\"", code, said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_kernel_runs),
		cmocka_unit_test(bugs_are_caught),
		cmocka_unit_test(sanitizer_sees_edges),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

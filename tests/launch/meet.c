/* Ranks whose launcher carries no data exchange bytes by TCP: processes forked here, with a launcher's variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/launch.h"
#include "comm/meet.h"

enum { RANKS = 4, BYTES = 100001 };

static const struct launcher *const list[] = {&launcher_environment, NULL};

static void set_number(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

static int rank_of(int rank)
{
	static unsigned char mine[BYTES], all[RANKS * BYTES];
	struct launch l;
	struct error e = {0};
	char text[LAUNCH_TEXT];
	bool differ;

	clearenv();
	set_number("PMI_RANK", rank);
	set_number("PMI_SIZE", RANKS);
	set_number("MPI_LOCALRANKID", rank);
	set_number("MPI_LOCALNRANKS", RANKS);
	if (!launch_init(&l, list, &e))
		return 1;
	for (int call = 0; call < 5; call++) {
		if ((rank + call) % 3 == 0)
			usleep(20000); /* others are early or late */
		memset(mine, 16 * call + rank + 1, sizeof mine);
		if (!launch_gather(all, mine, BYTES, 20, &e)) {
			fprintf(stderr, "rank %d: %s\n", rank, e.text);
			return 2;
		}
		for (int i = 0; i < RANKS * BYTES; i++)
			if (all[i] != 16 * call + i / BYTES + 1)
				return 3;
	}
	snprintf(text, sizeof text, "%d", rank);
	if (!launch_all_differ(&differ, text, 20, &e) || !differ)
		return 4;
	snprintf(text, sizeof text, "%d", rank % 3);
	if (!launch_all_differ(&differ, text, 20, &e) || differ)
		return 5;
	launch_finish();
	return 0;
}

static void bytes_go_round(void **state)
{
	for (int r = RANKS - 1; r >= 0; r--)
		if (fork() == 0)
			_exit(rank_of(r));
	for (int r = 0; r < RANKS; r++) {
		int status;
		assert_true(wait(&status) > 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static void who_is_missing_is_counted(void **state)
{
	struct meet_place p = {.host = "127.0.0.1", .port = (uint16_t)(33000 + getpid() % 1000), .token = 7};
	struct error e = {0};
	char out[3], in = 1;
	assert_false(meet_gather(&p, 0, 3, out, &in, 1, 0.3, &e));
	assert_int_equal(e.code, CODE_PEER);
	assert_non_null(strstr(e.text, "1 of 3 ranks came"));
	e = (struct error){0};
	assert_false(meet_gather(&p, 1, 3, out, &in, 1, 0.3, &e));
	assert_int_equal(e.code, CODE_PEER);
	assert_non_null(strstr(e.text, "rank 0 did not answer on 127.0.0.1"));
	e = (struct error){0};
	strcpy(p.host, "no-such-machine.invalid");
	assert_false(meet_gather(&p, 1, 3, out, &in, 1, 0.3, &e));
	assert_int_equal(e.code, CODE_MACHINE);
	assert_non_null(strstr(e.text, "no-such-machine.invalid"));
}

/* The launcher that started ranks on several machines must say where rank 0 is. */
static void rank_0_has_a_place(void **state)
{
	struct launch l;
	struct error e = {0};
	char out[2], in = 1;
	clearenv();
	setenv("PMI_RANK", "1", 1);
	setenv("PMI_SIZE", "2", 1);
	assert_true(launch_init(&l, list, &e));
	assert_false(launch_gather(out, &in, 1, 0.2, &e));
	assert_int_equal(e.code, CODE_MACHINE);
	assert_non_null(strstr(e.text, "MASTER_ADDR"));
	setenv("SLURM_STEP_NODELIST", "node-x[07-09,12],other", 1);
	assert_false(launch_gather(out, &in, 1, 0.2, &e));
	assert_non_null(strstr(e.text, "node-x07"));
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "39871", 1);
	assert_false(launch_gather(out, &in, 1, 0.2, &e));
	assert_non_null(strstr(e.text, "127.0.0.1, TCP port 39871"));
	launch_finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_go_round),
		cmocka_unit_test(who_is_missing_is_counted),
		cmocka_unit_test(rank_0_has_a_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

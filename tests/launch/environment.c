/* What launchers leave in the environment, and what is made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/launch.h"

enum { NAMED = 77 }; /* a node that the launcher did not number */

struct example {
	const char *set[12]; /* name, value, …, NULL */
	struct launch want;  /* size 0: not started by such a launcher */
};

static struct launch detect(const char *const *set, bool *found, struct error *e)
{
	struct launch l = {.local_size = 1, .node = NAMED};
	clearenv();
	for (; *set; set += 2)
		setenv(set[0], set[1], 1);
	*e = (struct error){0};
	*found = launcher_environment.detect(&l, e);
	return l;
}

static void test_places(void **state)
{
	static const struct example examples[] = {
		{{NULL}, {0}},
		/* A batch script: Slurm's job, but nobody started other ranks. */
		{{"SLURM_PROCID", "0", "SLURM_NTASKS", "4", "SLURM_LOCALID", "0", NULL}, {0}},
		{{"SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "SLURM_LOCALID", "1", "SLURM_NODEID", "1",
		  "SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
		 {5, 8, 1, 4, 1, "slurm environment"}},
		{{"SLURM_PROCID", "9", "SLURM_STEP_NUM_TASKS", "10", "SLURM_LOCALID", "0", "SLURM_NODEID", "3",
		  "SLURM_STEP_TASKS_PER_NODE", "3(x2),2,2"},
		 {9, 10, 0, 2, 3, "slurm environment"}},
		/* Too few nodes in the list: no local size rather than a wrong one. */
		{{"SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "4", "SLURM_LOCALID", "1", "SLURM_NODEID", "7",
		  "SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
		 {1, 4, 1, 1, 7, "slurm environment"}},
		/* Open MPI's daemons were started by srun: Slurm's numbers are theirs. */
		{{"SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4",
		  "OMPI_COMM_WORLD_LOCAL_RANK", "1"},
		 {3, 4, 1, 1, NAMED, "open mpi environment"}},
		{{"PMI_RANK", "2", "PMI_SIZE", "3", "MPI_LOCALRANKID", "0", "MPI_LOCALNRANKS", "1", NULL},
		 {2, 3, 0, 1, NAMED, "pmi environment"}},
	};
	for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
		const struct launch *want = &examples[i].want;
		struct error e;
		bool found;
		struct launch l = detect(examples[i].set, &found, &e);
		assert_int_equal(e.code, 0);
		assert_int_equal(found, want->size > 0);
		if (!found)
			continue;
		assert_string_equal(l.launcher, want->launcher);
		assert_int_equal(l.rank, want->rank);
		assert_int_equal(l.size, want->size);
		assert_int_equal(l.local_rank, want->local_rank);
		assert_int_equal(l.local_size, want->local_size);
		assert_int_equal(l.node, want->node);
	}
}

static void test_nonsense(void **state)
{
	static const char *const sets[][8] = {
		{"SLURM_PROCID", "two", "SLURM_STEP_NUM_TASKS", "4", NULL},
		{"SLURM_PROCID", "-1", "SLURM_STEP_NUM_TASKS", "4", NULL},
		{"SLURM_PROCID", "99999999999", "SLURM_STEP_NUM_TASKS", "4", NULL},
		{"SLURM_STEP_NUM_TASKS", "4", NULL},
		{"PMI_RANK", "0", "PMI_SIZE", "", NULL},
		{"SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "4", "SLURM_NODEID", "one", NULL},
	};
	static const char *const named[] = {"SLURM_PROCID=two", "SLURM_PROCID=-1", "SLURM_PROCID=9", "SLURM_PROCID is not",
					    "PMI_SIZE=", "SLURM_NODEID=one"};
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		struct error e;
		bool found;
		detect(sets[i], &found, &e);
		assert_false(found);
		assert_int_equal(e.code, CODE_USAGE);
		assert_non_null(strstr(e.text, named[i]));
	}
}

/* A rank that its world has no place for is refused, whoever says so. */
static void test_impossible(void **state)
{
	static const struct launcher *const list[] = {&launcher_environment, &launcher_alone, NULL};
	struct launch l;
	struct error e = {0};
	clearenv();
	setenv("PMI_RANK", "3", 1);
	setenv("PMI_SIZE", "3", 1);
	assert_false(launch_init(&l, list, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_non_null(strstr(e.text, "rank 3 of 3"));
	clearenv();
	assert_true(launch_init(&l, list, &e));
	assert_string_equal(l.launcher, "alone");
	assert_int_equal(l.size, 1);
	launch_finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_impossible),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

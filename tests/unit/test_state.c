#include "scratch.h"

#include <sys/wait.h>
#include <unistd.h>

#include "train/state.h"

static struct state_entry make(const char *name, int64_t rows, int64_t begin, int64_t end, float *memory)
{
	struct state_entry s = {.dtype = F32, .dims = 2, .shape = {rows, 3}, .owner = true};
	snprintf(s.name, sizeof s.name, "%s", name);
	s.box = box_whole(2, s.shape);
	s.box.begin[0] = begin;
	s.box.end[0] = end;
	s.local = tensor_2d(memory, F32, end - begin, 3);
	return s;
}

static void test_grows(void **unused)
{
	struct state s;
	float memory[12];
	char name[32];
	state_init(&s);
	for (int i = 0; i < 1000; i++) {
		struct state_entry entry;
		snprintf(name, sizeof name, "weight/%d", i);
		entry = make(name, 8, 2, 6, memory);
		state_add(&s, &entry);
	}
	assert_int_equal(s.count, 1000);
	assert_string_equal(s.entries[0].name, "weight/0");
	assert_string_equal(s.entries[999].name, "weight/999");
	assert_int_equal(box_count(&s.entries[500].box), 12);
	state_finish(&s);
	assert_int_equal(s.count, 0);
}

static bool dies(const struct state_entry *entry)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct state s;
		if (!freopen("/dev/null", "w", stderr))
			_exit(0);
		state_init(&s);
		state_add(&s, entry);
		_exit(0);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == CODE_MACHINE;
}

static void test_refuses(void **unused)
{
	float memory[24];
	struct state_entry right = make("a", 8, 2, 6, memory), wrong;
	assert_false(dies(&right));
	wrong = right;
	wrong.name[0] = '\0';
	assert_true(dies(&wrong));
	wrong = make("a#1", 8, 2, 6, memory);
	assert_true(dies(&wrong));
	wrong = right;
	wrong.box.end[0] = 9;
	assert_true(dies(&wrong));
	wrong = right;
	wrong.local = tensor_2d(memory, F32, 3, 3); /* less than the box */
	assert_true(dies(&wrong));
	wrong = right;
	wrong.local.dtype = F16;
	assert_true(dies(&wrong));
	wrong = right;
	wrong.box.end[0] = wrong.box.begin[0]; /* nothing here: no memory is asked for */
	wrong.local = (struct tensor){0};
	assert_false(dies(&wrong));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_grows), cmocka_unit_test(test_refuses)};
	return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}

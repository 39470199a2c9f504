#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layout.h"
#include "train/checkpoint.h"

/* What the ranks of a team do with a folder, and what came of it. */
struct job {
	struct layout layout;
	const char *dir, *at; /* at: load this one, not the newest of dir */
	int64_t step, keep_last, keep_every;
	bool small, weights_only;
	void (*change)(struct state *s, struct member *m); /* before the action */

	bool good[TEAM_MAX], right[TEAM_MAX];
	struct error e[TEAM_MAX];
	struct manifest_counters counters; /* as found */
	char found[PATH_ROOM];
};

static void save_work(struct member *m)
{
	struct job *j = m->job;
	struct state s;
	struct checkpoint *c;
	struct error *e = &j->e[m->rank];
	struct manifest_source sources[] = {{"web", 3}, {"books", 4}};
	struct config_pair settings[] = {{"model.layers", "2"}}, tuning[] = {{"gemm fp16 1x2x3", "algorithm 7"}};
	struct manifest_run run = {
		{j->step, j->step - 1, j->step * 8, j->step * 64, 4096, 5, 0}, sources, 2, settings, 1, tuning, 1};
	layout_build(&s, &j->layout, m, j->small);
	layout_values(&s, true, false);
	if (j->change)
		j->change(&s, m);
	j->good[m->rank] = checkpoint_open(&c, &(struct checkpoint_options){j->dir, j->keep_last, j->keep_every},
					   m->world, m->dev, e);
	if (j->good[m->rank]) {
		j->good[m->rank] = checkpoint_save(c, &s, m->rank == 0 ? &run : NULL, e);
		checkpoint_close(c);
	}
	state_finish(&s);
}

static void load_work(struct member *m)
{
	struct job *j = m->job;
	struct state s;
	struct checkpoint_found found;
	struct error *e = &j->e[m->rank];
	layout_build(&s, &j->layout, m, j->small);
	if (j->change)
		j->change(&s, m);
	bool good =
		j->at ? checkpoint_find_at(&found, j->at, m->world, e) : checkpoint_find(&found, j->dir, m->world, e);
	if (good && m->rank == 0) {
		j->counters = found.manifest.run.counters;
		snprintf(j->found, sizeof j->found, "%s", found.path);
	}
	if (good && found.path[0])
		good = checkpoint_load(&found, m->world, m->dev, &s, false, e);
	j->good[m->rank] = good;
	j->right[m->rank] = good && found.path[0] && layout_values(&s, false, false);
	checkpoint_found_finish(&found);
	state_finish(&s);
}

/* Runs the job; true if it was good on every rank. Ranks must agree. */
static bool run(struct job *j, void (*work)(struct member *m))
{
	int ranks = layout_ranks(&j->layout);
	memset(j->e, 0, sizeof j->e);
	memset(j->right, 0, sizeof j->right);
	team_run(ranks, work, j);
	for (int r = 1; r < ranks; r++) {
		assert_int_equal(j->good[r], j->good[0]);
		assert_string_equal(j->e[r].text, j->e[0].text);
		assert_int_equal(j->e[r].code, j->e[0].code);
	}
	return j->good[0];
}

static bool save(struct job *j, int64_t step)
{
	j->step = step;
	return run(j, save_work);
}

/* Loads, and true if every element on every rank is right. */
static bool load(struct job *j)
{
	bool right = run(j, load_work);
	for (int r = 0; r < layout_ranks(&j->layout); r++)
		right = right && j->right[r];
	return right;
}

/* The names in a folder that begin so, sorted, as one text. */
static const char *names(const char *dir, const char *prefix)
{
	static char text[1000];
	struct dirent **list;
	text[0] = '\0';
	int count = scandir(dir, &list, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		if (strncmp(list[i]->d_name, prefix, strlen(prefix)) == 0)
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
				 list[i]->d_name + strlen(prefix));
		free(list[i]);
	}
	if (count >= 0)
		free(list);
	return text;
}

/* A fresh folder for a test. */
static const char *fresh(void **state)
{
	static int number;
	static char path[PATH_ROOM];
	snprintf(path, sizeof path, "%s/run%d/checkpoints", (const char *)*state, number++);
	return path;
}

static const struct layout layouts[] = {
	{1, 1, 1, false}, {2, 2, 2, false}, {1, 4, 1, false}, {1, 1, 3, true}, {1, 3, 2, false},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void test_layouts(void **state)
{
	for (int from = 0; from < LAYOUTS; from++) {
		/* The large tensors only from the whole and from the flat one, which cuts inside their rows. */
		struct job j = {.layout = layouts[from], .dir = fresh(state), .small = from != 0 && from != 3};
		if (!save(&j, 7))
			fail_msg("layout %d: %s", from, j.e[0].text);
		for (int to = 0; to < LAYOUTS; to++) {
			j.layout = layouts[to];
			if (!load(&j))
				fail_msg("layout %d to %d: %s", from, to, j.good[0] ? "other bits" : j.e[0].text);
		}
		assert_int_equal(j.counters.step, 7);
		assert_int_equal(j.counters.updates, 6);
		assert_int_equal(j.counters.tokens, 7 * 64);
		assert_int_equal(j.counters.good_steps, 5);
		assert_true(j.counters.loss_scale == 4096);
		assert_string_equal(names(j.dir, ""), ". .. step-00000007 ");
	}
}

/* Where in the checkpoint a byte is changed or a file harmed. */
struct harm {
	const char *file;
	long at;           /* byte that changes; < 0: from the end */
	const char *cause; /* part of the message */
};

static const struct harm harms[] = {
	{"rank-00001.safetensors", -1, "a byte has changed"},
	{"rank-00000.safetensors", -700, "a byte has changed"},
	{"rank-00000.safetensors", 0, "a byte has changed"},
	{"rank-00000.safetensors", 5, "a byte has changed"},
	{"rank-00001.safetensors", 40, "a byte has changed"},
	{"manifest.json", 0, "manifest.xxh3"},
	{"manifest.json", 100, "manifest.xxh3"},
	{"manifest.json", -1, "manifest.xxh3"},
	{"manifest.xxh3", 0, "manifest.xxh3"},
	{"manifest.xxh3", 15, "manifest.xxh3"},
	{"manifest.xxh3", 16, "manifest.xxh3"},
};

static void flip(const char *path, long at)
{
	size_t bytes;
	unsigned char *data = scratch_read(path, &bytes);
	data[at < 0 ? (long)bytes + at : at] ^= 4;
	scratch_write(path, data, bytes);
	free(data);
}

/* A checkpoint that was harmed is refused where it was named and passed over where it was not. */
static void check_passed_over(struct job *j, const char *newest, const char *cause)
{
	j->at = newest;
	assert_false(run(j, load_work));
	assert_int_equal(j->e[0].code, CODE_CHECKPOINT);
	if (!strstr(j->e[0].text, cause))
		fail_msg("not \"%s\" but \"%s\"", cause, j->e[0].text);
	j->at = NULL;
	assert_true(load(j));
	assert_int_equal(j->counters.step, 10);
}

static void test_one_flipped_byte(void **state)
{
	struct job j = {.layout = {1, 2, 1, false}, .dir = fresh(state), .small = true};
	assert_true(save(&j, 10) && save(&j, 20));
	const char *newest = scratch_path(j.dir, "step-00000020");
	for (size_t i = 0; i < sizeof harms / sizeof harms[0]; i++) {
		const char *file = scratch_path(newest, harms[i].file);
		flip(file, harms[i].at);
		check_passed_over(&j, newest, harms[i].cause);
		flip(file, harms[i].at);
	}
	assert_true(load(&j));
	assert_int_equal(j.counters.step, 20);
}

/* Every byte of a file of the smallest state, one after the other. */
static void leave_two(struct state *s, struct member *m)
{
	(void)m;
	s->entries[0] = s->entries[s->count - 2];
	s->entries[1] = s->entries[s->count - 1];
	s->count = 2;
}

static void test_each_flipped_byte(void **state)
{
	struct job j = {.layout = {1, 1, 1, false}, .dir = fresh(state), .small = true, .change = leave_two};
	assert_true(save(&j, 10));
	const char *const files[] = {"rank-00000.safetensors", "manifest.json", "manifest.xxh3"};
	const char *step = scratch_path(j.dir, "step-00000010");
	j.at = step;
	for (int f = 0; f < 3; f++) {
		const char *file = scratch_path(step, files[f]);
		size_t bytes;
		unsigned char *data = scratch_read(file, &bytes);
		for (size_t at = 0; at < bytes; at++) {
			int fd = open(file, O_WRONLY);
			unsigned char other = data[at] ^ 0x20;
			assert_int_equal(pwrite(fd, &other, 1, (off_t)at), 1);
			if (run(&j, load_work))
				fail_msg("%s: byte %zu", files[f], at);
			assert_int_equal(j.e[0].code, CODE_CHECKPOINT);
			assert_int_equal(pwrite(fd, &data[at], 1, (off_t)at), 1);
			close(fd);
		}
		free(data);
	}
	assert_true(load(&j));
}

static void test_missing_and_cut(void **state)
{
	struct job j = {.layout = {1, 2, 1, false}, .dir = fresh(state), .small = true};
	assert_true(save(&j, 10) && save(&j, 20));
	const char *newest = scratch_path(j.dir, "step-00000020");
	const char *file = scratch_path(newest, "rank-00001.safetensors"), *aside = scratch_path(j.dir, "aside");
	struct stat st;
	assert_int_equal(stat(file, &st), 0);

	rename(file, aside);
	check_passed_over(&j, newest, "No such file");
	rename(aside, file);
	assert_int_equal(truncate(file, st.st_size + 1), 0);
	check_passed_over(&j, newest, "the manifest says");
	assert_int_equal(truncate(file, st.st_size - 1), 0);
	check_passed_over(&j, newest, "the manifest says");
	assert_int_equal(truncate(file, st.st_size), 0); /* the last byte is zero now */
	check_passed_over(&j, newest, "a byte has changed");
	unlink(scratch_path(newest, "manifest.xxh3"));
	check_passed_over(&j, newest, "No such file");
	unlink(scratch_path(newest, "manifest.json"));
	check_passed_over(&j, newest, "No such file");

	j.at = scratch_path(j.dir, "step-00000099");
	assert_false(run(&j, load_work));
	assert_int_equal(j.e[0].code, CODE_CHECKPOINT);
	/* None left: a run must not begin again as if there had never been one. */
	j.at = NULL;
	unlink(scratch_path(scratch_path(j.dir, "step-00000010"), "rank-00000.safetensors"));
	assert_false(run(&j, load_work));
	assert_int_equal(j.e[0].code, CODE_CHECKPOINT);
	assert_non_null(strstr(j.e[0].text, "none of the 2 checkpoints in "));
	assert_non_null(strstr(j.e[0].text, "step-00000020/manifest.json: No such file"));
}

/* Nothing to load is not an error, unless somebody named it. */
static void test_none(void **state)
{
	struct job j = {.layout = {1, 2, 1, false}, .dir = fresh(state), .small = true};
	assert_true(run(&j, load_work));
	assert_string_equal(j.found, "");
	struct error e;
	assert_true(file_make_folder(j.dir, CODE_MACHINE, &e));
	assert_true(run(&j, load_work));
	assert_string_equal(j.found, "");
	char *folder = strdup(j.dir);
	*strrchr(folder, '/') = '\0';
	j.at = folder;
	assert_false(run(&j, load_work));
	assert_non_null(strstr(j.e[0].text, "no valid checkpoint"));
	j.at = NULL;
	assert_true(save(&j, 3));
	j.at = folder; /* a run's folder stands for its newest */
	assert_true(load(&j));
	assert_string_equal(strrchr(j.found, '/'), "/step-00000003");
	free(folder);
}

static void last_is_new(struct state *s, struct member *m)
{
	if (m->rank == 1)
		snprintf(s->entries[s->count - 1].name, STATE_NAME, "weight/new");
}

static void last_is_longer(struct state *s, struct member *m)
{
	(void)m;
	s->entries[s->count - 1].shape[1] += 1;
}

static void moments_are_new(struct state *s, struct member *m)
{
	(void)m;
	for (int i = 0; i < s->count; i++)
		if (strcmp(s->entries[i].name, "m/bias") == 0)
			snprintf(s->entries[i].name, STATE_NAME, "m/new");
}

static void test_every_tensor_counts(void **state)
{
	/* Two stages: rank 1 alone has weight/rows. */
	struct job j = {.layout = {1, 1, 2, false}, .dir = fresh(state), .small = true};
	assert_true(save(&j, 10));
	j.change = last_is_new;
	assert_false(run(&j, load_work));
	assert_int_equal(j.e[0].code, CODE_CHECKPOINT);
	assert_non_null(strstr(j.e[0].text, "it lacks: weight/new; nothing takes: weight/rows"));
	j.change = last_is_longer;
	assert_false(run(&j, load_work));
	assert_non_null(strstr(j.e[0].text, "weight/rows (u8 5x3, the run has u8 5x4)"));
	/* An optional one may be absent, but what the checkpoint has must not be dropped. */
	j.change = moments_are_new;
	assert_false(run(&j, load_work));
	assert_non_null(strstr(j.e[0].text, "is not of this model; nothing takes: m/bias"));
	assert_null(strstr(j.e[0].text, "lacks"));
	j.change = NULL;
	assert_true(load(&j));
}

static void without_moments(struct state *s, struct member *m)
{
	(void)m;
	for (int i = 0; i < s->count; i++)
		if (strcmp(s->entries[i].name, "m/bias") == 0)
			s->entries[i--] = s->entries[--s->count];
}

/* Loads, and looks for the right values in some entries and zeros in the others: weights_only, all but the weights;
 * else the optional moment that the checkpoint does not have. */
static void zeros_work(struct member *m)
{
	struct job *j = m->job;
	struct state s, full, zero;
	struct checkpoint_found found;
	struct error *e = &j->e[m->rank];
	layout_build(&s, &j->layout, m, true);
	for (int i = 0; j->weights_only && i < s.count; i++)
		if (strncmp(s.entries[i].name, "weight/", 7) != 0)
			snprintf(s.entries[i].name, STATE_NAME, "new/%d", i); /* not in the checkpoint */
	j->good[m->rank] = checkpoint_find(&found, j->dir, m->world, e) &&
			   checkpoint_load(&found, m->world, m->dev, &s, j->weights_only, e);
	state_init(&full);
	state_init(&zero);
	for (int i = 0; i < s.count; i++) {
		struct state_entry *entry = &s.entries[i];
		bool weight = strncmp(entry->name, "weight/", 7) == 0;
		bool zeroed = j->weights_only ? !weight : strcmp(entry->name, "m/bias") == 0;
		if (j->weights_only && zeroed)
			snprintf(entry->name, STATE_NAME, "count"); /* any name that layout.h knows */
		state_add(zeroed ? &zero : &full, entry);
	}
	j->right[m->rank] = layout_values(&full, false, false) && layout_values(&zero, false, true) && zero.count > 0;
	checkpoint_found_finish(&found);
	state_finish(&s);
	state_finish(&full);
	state_finish(&zero);
}

static void test_zeros(void **state)
{
	struct job j = {.layout = {1, 2, 1, false}, .dir = fresh(state), .small = true, .weights_only = true};
	assert_true(save(&j, 10));
	assert_true(run(&j, zeros_work));
	assert_true(j.right[0] && j.right[1]);
	j.change = without_moments;
	j.weights_only = false;
	assert_true(save(&j, 20));
	assert_true(run(&j, zeros_work));
	assert_true(j.right[0] && j.right[1]);
}

static void test_keep(void **state)
{
	struct job j = {
		.layout = {1, 2, 1, false}, .dir = fresh(state), .small = true, .keep_last = 2, .keep_every = 30};
	for (int64_t step = 10; step <= 70; step += 10)
		assert_true(save(&j, step));
	assert_string_equal(names(j.dir, "step-000000"), "30 60 70 ");
	/* Back to 30: what lies ahead is left alone and does not push anything out. */
	assert_true(save(&j, 40) && save(&j, 50));
	assert_string_equal(names(j.dir, "step-000000"), "30 40 50 60 70 ");
	/* A step that is there is replaced. */
	flip(scratch_path(scratch_path(j.dir, "step-00000070"), "rank-00000.safetensors"), -1);
	assert_true(save(&j, 70));
	assert_string_equal(names(j.dir, "step-000000"), "30 60 70 ");
	assert_true(load(&j));
	assert_int_equal(j.counters.step, 70);
	/* Folders of other names are not ours. */
	struct error e;
	assert_true(file_make_folder(scratch_path(j.dir, "step-5"), CODE_MACHINE, &e));
	assert_true(file_make_folder(scratch_path(j.dir, "step-00000005x"), CODE_MACHINE, &e));
	j.keep_last = 1;
	j.keep_every = 0;
	assert_true(save(&j, 123456789));
	assert_string_equal(names(j.dir, "step-"), "00000005x 123456789 5 ");
	j.keep_last = 0;
	assert_true(save(&j, 123456790));
	assert_string_equal(names(j.dir, "step-1"), "23456789 23456790 ");
	assert_string_equal(names(j.dir, ".tmp"), "");
}

/* A save that a kill interrupts leaves a hidden folder, which does not count and goes at the next start. */
static void test_killed(void **state)
{
	struct job j = {.layout = {1, 1, 1, false}, .dir = fresh(state), .small = true, .keep_last = 2};
	int64_t newest = 1;
	assert_true(save(&j, newest));
	for (int i = 0; i < 12; i++) {
		int pipe_ends[2];
		assert_int_equal(pipe(pipe_ends), 0);
		pid_t pid = fork();
		if (pid == 0) {
			for (int64_t step = newest + 1;; step++) {
				j.step = step;
				team_run(1, save_work, &j);
				if (!j.good[0] || write(pipe_ends[1], &step, sizeof step) != sizeof step)
					_exit(1);
			}
		}
		close(pipe_ends[1]);
		int64_t told;
		assert_int_equal(read(pipe_ends[0], &told, sizeof told), sizeof told);
		newest = told;
		usleep((useconds_t)(i * 700));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		while (read(pipe_ends[0], &told, sizeof told) == sizeof told)
			newest = told;
		close(pipe_ends[0]);
		assert_true(load(&j)); /* what was told to be saved, or the one after it */
		assert_true(j.counters.step == newest || j.counters.step == newest + 1);
	}
	struct error e;
	assert_true(file_make_folder(scratch_path(j.dir, ".tmp-step-00999999"), CODE_MACHINE, &e));
	scratch_write(scratch_path(j.dir, ".tmp-step-00999999/manifest.json"), "{", 1);
	assert_true(load(&j));
	assert_true(save(&j, 1000000));
	assert_string_equal(names(j.dir, ".tmp"), "");
}

static void nobody_owns(struct state *s, struct member *m)
{
	(void)m;
	s->entries[1].owner = false;
}

static void two_own(struct state *s, struct member *m)
{
	(void)m;
	for (int i = 0; i < s->count; i++)
		s->entries[i].owner = true;
}

/* A save that fails says why on every rank, leaves nothing behind, and the one before it is as it was. */
static void check_failed(struct job *j, int64_t step, const char *cause)
{
	assert_false(save(j, step));
	assert_int_equal(j->e[0].code, CODE_MACHINE);
	if (!strstr(j->e[0].text, cause))
		fail_msg("not \"%s\" but \"%s\"", cause, j->e[0].text);
	assert_string_equal(names(j->dir, ".tmp"), "");
	j->change = NULL;
	assert_true(load(j));
	assert_int_equal(j->counters.step, 10);
}

static void test_failed_saves(void **state)
{
	struct job j = {.layout = {2, 2, 1, false}, .dir = fresh(state), .small = true, .keep_last = 1};
	assert_true(save(&j, 10));
	struct rlimit limit, small;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = 10000;
	setrlimit(RLIMIT_FSIZE, &small);
	check_failed(&j, 20, "File too large");
	setrlimit(RLIMIT_FSIZE, &limit);

	j.change = nobody_owns;
	check_failed(&j, 20, "tensor \"weight/out\" belongs to no rank");
	j.change = two_own;
	check_failed(&j, 20, "more elements than it has");

	scratch_write(scratch_path(j.dir, "step-00000020"), "", 0); /* in the way, but gives way */
	assert_true(save(&j, 20));
	assert_true(load(&j));
	assert_int_equal(j.counters.step, 20);
	j.dir = scratch_path(*state, "file");
	scratch_write(j.dir, "", 0);
	assert_false(save(&j, 30));
	assert_non_null(strstr(j.e[0].text, "Not a directory"));
}

/* A file system with too little room, seen before anything is written; and one that fills up on the way. */
static void test_full_disk(void **state)
{
	const char *disk = scratch_path(*state, "disk");
	struct error e;
	assert_true(file_make_folder(disk, CODE_MACHINE, &e));
	if (mount("tmpfs", disk, "tmpfs", 0, "size=512k") != 0)
		skip();
	const char *dir = scratch_path(disk, "checkpoints");
	struct job j = {.layout = {1, 2, 1, false}, .dir = dir, .small = true};
	bool first = save(&j, 10);
	j.small = false;
	bool second = save(&j, 20);
	struct error told = j.e[0];
	j.small = true;
	bool loaded = load(&j);
	char *left = strdup(names(dir, ""));
	umount(disk);
	assert_true(first);
	assert_false(second);
	assert_non_null(strstr(told.text, "no room for a checkpoint: it takes"));
	assert_true(loaded);
	assert_int_equal(j.counters.step, 10);
	assert_string_equal(left, ". .. step-00000010 ");
	free(left);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts),       cmocka_unit_test(test_one_flipped_byte),
		cmocka_unit_test(test_each_flipped_byte), cmocka_unit_test(test_missing_and_cut),
		cmocka_unit_test(test_none),          cmocka_unit_test(test_every_tensor_counts),
		cmocka_unit_test(test_zeros),         cmocka_unit_test(test_keep),
		cmocka_unit_test(test_killed),        cmocka_unit_test(test_failed_saves),
		cmocka_unit_test(test_full_disk),
	};
	return cmocka_run_group_tests_name("checkpoint", tests, scratch_open, scratch_close);
}

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/tokenize.h"
#include "shard_files.h"

static const char *source_root;

/* The command with these words behind "tokenize"; NULL ends them. */
static int command(struct error *e, ...)
{
	char *argv[16] = {(char[]){"tokenize"}};
	int argc = 1;
	va_list args;
	*e = (struct error){0};
	va_start(args, e);
	while ((argv[argc] = va_arg(args, char *)) != NULL)
		argc++;
	va_end(args);
	fflush(stdout);
	int out = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);
	dup2(null, STDOUT_FILENO);
	int code = command_tokenize(argc, argv, e);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(null);
	return code;
}

/* PREFIX's three files hold exactly these documents: looked at byte by byte. */
static void holds(const char *prefix, const struct bytes *documents, int count)
{
	char path[600], json[200];
	struct bytes bin = {0}, idx = {0};
	int64_t begin = 0;
	for (int i = 0; i < count; i++) {
		for (size_t j = 0; j < documents[i].count; j++)
			bytes_number(&bin, documents[i].data[j], 2);
		bytes_number(&bin, 256, 2);
	}
	bytes_add(&idx, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
	bytes_number(&idx, count, 8);
	bytes_number(&idx, count + 1, 8);
	for (int i = 0; i < count; i++)
		bytes_number(&idx, (int64_t)documents[i].count + 1, 4);
	for (int i = 0; i < count; begin += 2 * (int64_t)(documents[i++].count + 1))
		bytes_number(&idx, begin, 8);
	for (int i = 0; i <= count; i++)
		bytes_number(&idx, i, 8);
	snprintf(json, sizeof json, "{\"tokenizer\":\"bytes\",\"vocab_size\":257,\"end_of_document\":256,"
		 "\"documents\":%d,\"tokens\":%d}\n", count, (int)(bin.count / 2));
	struct bytes expected[] = {bin, idx, {(unsigned char *)json, strlen(json), 0}};
	static const char *const endings[] = {"bin", "idx", "json"};
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s.%s", prefix, endings[i]);
		struct bytes found = bytes_read(path);
		assert_int_equal(found.count, expected[i].count);
		assert_memory_equal(found.data, expected[i].data, found.count);
		bytes_free(&found);
		snprintf(path, sizeof path, "%s.%s.tmp", prefix, endings[i]);
		assert_false(exists(path));
	}
	bytes_free(&bin);
	bytes_free(&idx);
}

static void holds_texts(const char *prefix, const char *const *texts, int count)
{
	struct bytes documents[32];
	for (int i = 0; i < count; i++) {
		documents[i] = (struct bytes){0};
		bytes_text(&documents[i], texts[i]);
	}
	holds(prefix, documents, count);
	for (int i = 0; i < count; i++)
		bytes_free(&documents[i]);
}

static void writes_every_byte(void **state)
{
	struct bytes all = {0}, empty = {0}, documents[3];
	struct error e;
	for (int i = 0; i < 256; i++)
		bytes_number(&all, i, 1);
	documents[0] = documents[2] = all;
	documents[1] = empty;
	struct bytes copy = {0};
	bytes_add(&copy, all.data, all.count);
	bytes_write(&copy, scratch("every"));
	write_text(scratch("void"), "");
	assert_int_equal(command(&e, "--tokenizer", "bytes", "--output", scratch("out/every"), scratch("every"),
				 scratch("void"), scratch("every"), NULL),
			 0);
	holds(scratch("out/every"), documents, 3);
	bytes_free(&all);
}

/* Byte order of whole paths: '-' and '.' are before '/', '0' behind it. */
static void walks_folders_in_byte_order(void **state)
{
	static const char *const order[] = {"t/.hidden", "t/a-b", "t/a.c", "t/a/b",
					    "t/a/c/d",   "t/a0",  "t/b",   "t/\xc3\xa9"};
	static const char *const links[] = {"t/.hidden", "t/a-b", "t/a.c", "t/a/b", "t/a/c/d", "t/a0", "t/b", "t/a.c",
					    "t/\xc3\xa9"};
	struct error e;
	for (int i = 7; i >= 0; i--)
		write_text(scratch("%s", order[i]), order[i]);
	mkdir(scratch("t/nothing"), 0777);
	assert_int_equal(command(&e, "--tokenizer=bytes", "--output", scratch("walk"), scratch("t"), NULL), 0);
	holds_texts(scratch("walk"), order, 8);
	assert_int_equal(command(&e, "--tokenizer=bytes", "--output", scratch("walk"), scratch("t/"), NULL), 0);
	holds_texts(scratch("walk"), order, 8);

	/* A link to a file counts as one, links to folders and dead ones do not; the circle ends. */
	assert_int_equal(symlink("a.c", scratch("t/link")), 0);
	assert_int_equal(symlink("..", scratch("t/a/up")), 0);
	assert_int_equal(symlink("nowhere", scratch("t/dead")), 0);
	assert_int_equal(symlink("loop", scratch("t/loop")), 0);
	assert_int_equal(mkfifo(scratch("t/pipe"), 0666), 0);
	char *inputs[] = {(char[600]){0}};
	strcpy(inputs[0], scratch("t"));
	struct tokenize_settings s = {scratch("walk"), 2, inputs, 1, 1000};
	struct tokenize_counts n;
	assert_true(tokenize(&s, &n, &e));
	holds_texts(scratch("walk"), links, 9);
	assert_int_equal(n.documents, 9);
	assert_int_equal(n.skipped.folder_links, 1);
	assert_int_equal(n.skipped.dead_links, 2);
	assert_int_equal(n.skipped.special, 1);

	/* A link given as an argument is followed. */
	assert_int_equal(symlink("t/a", scratch("to-a")), 0);
	unlink(scratch("t/a/up"));
	assert_int_equal(command(&e, "--tokenizer=bytes", "--output", scratch("walk"), scratch("to-a"), NULL), 0);
	holds_texts(scratch("walk"), order + 3, 2);
}

static void gives_the_same_for_any_number_of_jobs(void **state)
{
	/* Around what is read and what is handed out at once. */
	static const size_t sizes[] = {5000000, 1 << 22, (1 << 22) + 1, 1 << 17, (1 << 17) - 1, 1, 0, 0};
	struct bytes documents[40];
	struct error e;
	uint32_t x = 1;
	for (int i = 0; i < 40; i++) {
		struct bytes b = {0};
		size_t count = i < 8 ? sizes[i] : (size_t)i * 1000;
		b.data = malloc(count + 1);
		b.count = count;
		for (size_t j = 0; j < count; j++) {
			x = x * 1664525u + 1013904223u;
			b.data[j] = (unsigned char)(x >> 24);
		}
		documents[i] = (struct bytes){0};
		bytes_add(&documents[i], b.data, b.count);
		bytes_write(&b, scratch("jobs/%02d", i));
	}
	for (int jobs = 1; jobs <= 3; jobs += 2) {
		assert_int_equal(command(&e, "--tokenizer", "bytes", "--jobs", jobs == 1 ? "1" : "3", "--output",
					 scratch("jobs-out"), scratch("jobs"), NULL), 0);
		struct bytes bin = bytes_read(scratch("jobs-out.bin"));
		size_t at = 0;
		for (int i = 0; i < 40; i++) {
			for (size_t j = 0; j < documents[i].count; j++, at += 2)
				if (bin.data[at] != documents[i].data[j] || bin.data[at + 1] != 0)
					fail_msg("%d jobs, document %d, byte %zu", jobs, i, j);
			assert_int_equal(bin.data[at++], 0);
			assert_int_equal(bin.data[at++], 1);
		}
		assert_int_equal(at, bin.count);
		bytes_free(&bin);
	}
	for (int i = 0; i < 40; i++)
		bytes_free(&documents[i]);
}

/* A document beyond the longest sequence becomes several sequences and stays one document. */
static void cuts_long_documents_into_sequences(void **state)
{
	struct error e;
	struct tokenize_counts n;
	write_text(scratch("long1"), "0123456789"); /* 11 tokens: 5, 5, 1 */
	write_text(scratch("long2"), "abcd");       /* 5 tokens: 5 */
	write_text(scratch("long3"), "ABCDE");      /* 6 tokens: 5, 1 */
	char *inputs[] = {strdup(scratch("long1")), strdup(scratch("long2")), strdup(scratch("long3"))};
	struct tokenize_settings s = {scratch("long"), 2, inputs, 3, 5};
	assert_true(tokenize(&s, &n, &e));
	assert_int_equal(n.documents, 3);
	struct bytes expected = index_bytes(8, 2, (int32_t[]){5, 5, 1, 5, 5, 1}, 6, (int64_t[]){0, 3, 4, 6}, 4);
	struct bytes found = bytes_read(scratch("long.idx"));
	assert_int_equal(found.count, expected.count);
	assert_memory_equal(found.data, expected.data, found.count);
	bytes_free(&found);
	bytes_free(&expected);
	for (int i = 0; i < 3; i++)
		free(inputs[i]);
}

static void refused(int code, int expected, const struct error *e, const char *part)
{
	assert_int_equal(code, expected);
	assert_int_equal(e->code, expected);
	if (!strstr(e->text, part))
		fail_msg("\"%s\" has no \"%s\"", e->text, part);
}

static void leaves_the_old_shard_when_it_fails(void **state)
{
	struct error e;
	static const char *const kept[] = {"kept"};
	write_text(scratch("kept.txt"), "kept");
	assert_int_equal(command(&e, "--tokenizer", "bytes", "--output", scratch("old"), scratch("kept.txt"), NULL), 0);
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("old"), scratch("kept.txt"), scratch("missing"),
			NULL),
		CODE_DATA, &e, "missing: No such file");
	holds_texts(scratch("old"), kept, 1);
	mkdir(scratch("bare"), 0777);
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("old"), scratch("kept.txt"), scratch("bare"),
			NULL),
		CODE_DATA, &e, "bare: there is no file in this folder");
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("old"), "/dev/null", NULL), CODE_DATA, &e,
		"/dev/null: neither a file nor a folder");
	/* Its size is said to be 0, but there is text in it: as a file that grows. */
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("old"), "/proc/self/status", NULL), CODE_DATA,
		&e, "/proc/self/status: changed while it was read");
	holds_texts(scratch("old"), kept, 1);
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("kept.txt/out"), scratch("kept.txt"), NULL),
		CODE_MACHINE, &e, "kept.txt");
	write_text(scratch("in/a"), "a");
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("in/out"), scratch("in"), NULL), CODE_USAGE, &e,
		"lies inside an input folder");
	assert_false(exists(scratch("in/out.bin.tmp")));
	assert_false(exists(scratch("in/out.bin")));
}

static void keeps_two_writers_apart(void **state)
{
	struct error e;
	write_text(scratch("w.txt"), "w");
	int other = open(scratch("twice.bin.tmp"), O_RDWR | O_CREAT, 0666);
	assert_int_equal(flock(other, LOCK_EX), 0);
	assert_int_equal(write(other, "theirs", 6), 6);
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("twice"), scratch("w.txt"), NULL), CODE_USAGE,
		&e, "another process is writing it");
	struct bytes theirs = bytes_read(scratch("twice.bin.tmp"));
	assert_int_equal(theirs.count, 6);
	bytes_free(&theirs);
	close(other); /* as if it had been killed: what it left behind is overwritten */
	assert_int_equal(command(&e, "--tokenizer", "bytes", "--output", scratch("twice"), scratch("w.txt"), NULL), 0);
	holds_texts(scratch("twice"), (const char *const[]){"w"}, 1);
}

static void explains_wrong_words(void **state)
{
	struct error e;
	refused(command(&e, NULL), CODE_USAGE, &e, "--tokenizer bytes is required");
	refused(command(&e, "--tokenizer", "bytes", "x", NULL), CODE_USAGE, &e, "--output PREFIX is required");
	refused(command(&e, "--tokenizer", "bytes", "--output", "x", NULL), CODE_USAGE, &e, "an argument is missing");
	refused(command(&e, "--tokeniser", "bytes", NULL), CODE_USAGE, &e, "did you mean '--tokenizer'?");
	refused(command(&e, "--jobs", "0", NULL), CODE_USAGE, &e, "--jobs 0: must be a whole number");
	refused(command(&e, "--jobs", "1025", NULL), CODE_USAGE, &e, "--jobs 1025: must be a whole number");
	refused(command(&e, "--tokenizer", "gpt2", "--output", "x", "y", NULL), CODE_USAGE, &e,
		"--tokenizer gpt2: the tokenizer that is known is bytes");
	refused(command(&e, "--tokenizer", "bytes", "--output", scratch("out/"), "y", NULL), CODE_USAGE, &e,
		"not a folder");
	refused(command(&e, "--tokenizer", "bytes", "--output", "some/x.bin", "y", NULL), CODE_USAGE, &e, "say some/x");
	assert_int_equal(command(&e, "--help", NULL), 0);
}

/* data/sample.* is what the command makes of data/sample. */
static void makes_the_sample(void **state)
{
	static const char *const endings[] = {"bin", "idx", "json"};
	char path[600];
	struct error e;
	snprintf(path, sizeof path, "%s/data/sample", source_root);
	assert_int_equal(command(&e, "--tokenizer", "bytes", "--output", scratch("sample"), path, NULL), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/data/sample.%s", source_root, endings[i]);
		struct bytes kept = bytes_read(path), made = bytes_read(scratch("sample.%s", endings[i]));
		assert_int_equal(kept.count, made.count);
		assert_memory_equal(kept.data, made.data, kept.count);
		bytes_free(&kept);
		bytes_free(&made);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_every_byte),
		cmocka_unit_test(walks_folders_in_byte_order),
		cmocka_unit_test(gives_the_same_for_any_number_of_jobs),
		cmocka_unit_test(cuts_long_documents_into_sequences),
		cmocka_unit_test(leaves_the_old_shard_when_it_fails),
		cmocka_unit_test(keeps_two_writers_apart),
		cmocka_unit_test(explains_wrong_words),
		cmocka_unit_test(makes_the_sample),
	};
	source_root = argv[1];
	return cmocka_run_group_tests(tests, shard_files_open, shard_files_close);
}

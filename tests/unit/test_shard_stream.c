#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "shard_files.h"
#include "train/shard_stream.h"

static struct shard_stream joined(const char *const *names, int count, enum shard_format format)
{
	struct shard_stream t;
	struct error e = {0};
	if (!shard_stream_open(&t, names, count, format, &e))
		fail_msg("%s", e.text);
	return t;
}

static void refused(const char *name, enum shard_format format, const char *part)
{
	struct shard_stream t;
	struct error e = {0};
	assert_false(shard_stream_open(&t, &name, 1, format, &e));
	assert_int_equal(e.code, CODE_DATA);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" has no \"%s\"", e.text, part);
}

/* Ids count up from `first`; `documents` of 5 tokens each. */
static void pair(const char *prefix, int64_t first, int documents)
{
	int64_t ids[200] = {0}, begins[41] = {0};
	int32_t lengths[40] = {0};
	for (int i = 0; i < 5 * documents; i++)
		ids[i] = first + i;
	for (int i = 0; i <= documents; i++)
		begins[i] = i;
	for (int i = 0; i < documents; i++)
		lengths[i] = 5;
	write_pair(prefix, 8, 2, ids, 5 * documents, lengths, documents, begins, documents + 1);
}

static void counts_up(const struct shard_stream *t, int64_t tokens)
{
	struct error e = {0};
	int32_t out[200];
	assert_int_equal(t->tokens, tokens);
	for (int64_t begin = 0; begin < tokens; begin++)
		for (int64_t n = 1; n <= tokens - begin; n++) {
			assert_true(shard_stream_read(t, begin, n, 1000, out, &e));
			for (int64_t i = 0; i < n; i++)
				assert_int_equal(out[i], begin + i);
		}
}

static void joins_in_the_order_given(void **state)
{
	pair(scratch("z"), 0, 2);
	pair(scratch("empty"), 0, 0);
	pair(scratch("a"), 10, 3);
	write_ids(scratch("m"), 2, (int64_t[]){25, 26}, 2);
	const char *const names[] = {scratch("empty"), scratch("z"), scratch("empty.bin"), scratch("a.idx")};
	struct shard_stream t = joined(names, 4, SHARD_AUTO);
	assert_int_equal(t.documents, 5);
	counts_up(&t, 25);
	shard_stream_close(&t);
	write_ids(scratch("n"), 2, (int64_t[]){0, 1, 2}, 3);
	write_ids(scratch("o"), 2, (int64_t[]){3}, 1);
	t = joined((const char *const[]){scratch("n"), scratch("o")}, 2, SHARD_U16);
	assert_int_equal(t.documents, -1);
	counts_up(&t, 4);
	shard_stream_close(&t);
}

/* '-' is before '.', so a-1.bin is before a.bin, and a.bin before a0.bin. */
static void takes_patterns_in_byte_order(void **state)
{
	static const char *const patterns[] = {"g/*", "g/a*.bin", "g/*.idx", "g/a*", "?/a*"};
	pair(scratch("g/a0"), 10, 1);
	pair(scratch("g/a"), 5, 1);
	pair(scratch("g/a-1"), 0, 1);
	write_text(scratch("g/a.json"), "{\"vocab_size\":1000}");
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
		const char *name = scratch("%s", patterns[i]);
		struct shard_stream t = joined(&name, 1, SHARD_AUTO);
		assert_int_equal(t.count, 3);
		counts_up(&t, 15);
		shard_stream_close(&t);
	}
	const char *name = scratch("g/a?"); /* matches no file, but a PREFIX */
	struct shard_stream t = joined(&name, 1, SHARD_MEGATRON);
	assert_int_equal(t.count, 1);
	assert_int_equal(t.tokens, 5);
	shard_stream_close(&t);
	write_ids(scratch("h/2"), 2, (int64_t[]){2, 3}, 2);
	write_ids(scratch("h/1.bin"), 2, (int64_t[]){0, 1}, 2);
	name = scratch("h/*");
	t = joined(&name, 1, SHARD_U16);
	counts_up(&t, 4);
	shard_stream_close(&t);
	write_ids(scratch("odd[name"), 2, (int64_t[]){0, 1}, 2); /* a file, though it looks like a pattern */
	name = scratch("odd[name");
	t = joined(&name, 1, SHARD_U16);
	counts_up(&t, 2);
	shard_stream_close(&t);
}

static void refuses_what_is_not_there(void **state)
{
	write_text(scratch("j/x.json"), "{}");
	write_text(scratch("k/readme"), "text");
	refused(scratch("i/none*"), SHARD_AUTO, "none*: no file matches");
	refused(scratch("nofolder-here"), SHARD_AUTO, "no such file");
	refused(scratch("j/*"), SHARD_AUTO, "matches only .json files");
	refused(scratch("k/*"), SHARD_AUTO, "k/readme: neither a Megatron shard");
	pair(scratch("l/a"), 0, 1);
	pair(scratch("l/b"), 0, 1);
	write_text(scratch("l/b.idx"), "no index");
	refused(scratch("l/*"), SHARD_AUTO, "l/b.idx: 8 bytes long");
}

static int64_t cut(const struct shard_stream *t, int64_t target, int64_t end_of_document)
{
	struct error e = {0};
	int64_t at;
	if (!shard_stream_cut(t, target, end_of_document, &at, &e))
		fail_msg("%s", e.text);
	return at;
}

static void cuts_at_documents(void **state)
{
	pair(scratch("c1"), 0, 3);
	pair(scratch("c2"), 15, 2);
	struct shard_stream t = joined((const char *const[]){scratch("c1"), scratch("c2")}, 2, SHARD_AUTO);
	static const int64_t expected[] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 15, 15, 15, 15, 15, 20, 20,
					   20, 20, 20};
	for (int64_t target = 0; target < 25; target++)
		assert_int_equal(cut(&t, target, -1), expected[target]);
	shard_stream_close(&t);
	pair(scratch("c3"), 0, 1);
	t = joined((const char *const[]){scratch("c3")}, 1, SHARD_AUTO);
	assert_int_equal(cut(&t, 4, -1), -1); /* there is only one document */
	shard_stream_close(&t);
}

/* A file far larger than what is read at once, with three end-of-document tokens (id 9) in it. */
static void cuts_at_end_of_document(void **state)
{
	enum { COUNT = 200000 };
	static const int64_t nines[] = {50000, 120000, 120001};
	struct bytes b = {0};
	unsigned char *ids = (unsigned char[2 * COUNT]){0};
	for (int i = 0; i < 3; i++)
		ids[2 * nines[i]] = 9;
	bytes_add(&b, ids, 2 * COUNT);
	bytes_write(&b, scratch("eod"));
	struct shard_stream t = joined((const char *const[]){scratch("eod")}, 1, SHARD_U16);
	assert_int_equal(cut(&t, 0, 9), 50001);
	assert_int_equal(cut(&t, 50000, 9), 50001);
	assert_int_equal(cut(&t, 50001, 9), 50001);
	assert_int_equal(cut(&t, 120000, 9), 50001);
	assert_int_equal(cut(&t, 120001, 9), 120001);
	assert_int_equal(cut(&t, 120002, 9), 120002);
	assert_int_equal(cut(&t, 199999, 9), 120002);
	assert_int_equal(cut(&t, 100000, 8), -1);
	assert_int_equal(cut(&t, 100000, -1), -1);
	shard_stream_close(&t);
	write_ids(scratch("last"), 2, (int64_t[]){1, 2, 9}, 3);
	t = joined((const char *const[]){scratch("last")}, 1, SHARD_U16);
	assert_int_equal(cut(&t, 2, 9), -1); /* the one document ends with the file */
	shard_stream_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joins_in_the_order_given),
		cmocka_unit_test(takes_patterns_in_byte_order),
		cmocka_unit_test(refuses_what_is_not_there),
		cmocka_unit_test(cuts_at_documents),
		cmocka_unit_test(cuts_at_end_of_document),
	};
	return cmocka_run_group_tests(tests, shard_files_open, shard_files_close);
}

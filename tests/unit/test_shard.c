#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shard_files.h"
#include "train/shard.h"

static const char *source_root;

static struct shard opened(const char *name, enum shard_format format)
{
	struct shard s = {0};
	struct error e = {0};
	char path[PATH_ROOM];
	if (!shard_find(name, format, path, &e) || !shard_open(&s, path, format, &e))
		fail_msg("%s", e.text);
	return s;
}

/* Opening fails with data's exit code and a text that has both parts. */
static void refused(const char *name, enum shard_format format, const char *part, const char *other)
{
	struct shard s;
	struct error e = {0};
	char path[PATH_ROOM];
	if (shard_find(name, format, path, &e) && shard_open(&s, path, format, &e))
		fail_msg("%s was opened", name);
	assert_int_equal(e.code, CODE_DATA);
	if (!strstr(e.text, part) || !strstr(e.text, other))
		fail_msg("\"%s\" has not both \"%s\" and \"%s\"", e.text, part, other);
}

static void unreadable(const struct shard *s, int64_t begin, int64_t count, int64_t vocab, const char *part,
		       const char *other)
{
	struct error e = {0};
	int32_t out[64];
	assert_false(shard_read(s, begin, count, vocab, out, &e));
	assert_int_equal(e.code, CODE_DATA);
	if (!strstr(e.text, part) || !strstr(e.text, other))
		fail_msg("\"%s\" has not both \"%s\" and \"%s\"", e.text, part, other);
}

static void reads(const struct shard *s, int64_t begin, int64_t count, const int64_t *expected)
{
	struct error e = {0};
	int32_t out[4096];
	if (!shard_read(s, begin, count, INT32_MAX, out, &e))
		fail_msg("%s", e.text);
	for (int64_t i = 0; i < count; i++)
		assert_int_equal(out[i], expected[i]);
}

static void reads_every_integer_type(void **state)
{
	static const struct {
		int code, width;
		int64_t most;
	} types[] = {{1, 1, 255},           {2, 1, 127},           {3, 2, 32767},
		     {4, 4, INT32_MAX - 1}, {5, 8, INT32_MAX - 1}, {8, 2, 65535}};
	for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
		const char *prefix = scratch("type%d", types[k].code);
		int64_t ids[] = {0, 1, types[k].most, types[k].most / 2, 7};
		write_pair(prefix, types[k].code, types[k].width, ids, 5, (int32_t[]){3, 2}, 2, (int64_t[]){0, 1, 2},
			   3);
		struct shard s = opened(prefix, SHARD_AUTO);
		assert_int_equal(s.format, SHARD_MEGATRON);
		assert_int_equal(s.tokens, 5);
		assert_int_equal(shard_documents(&s), 2);
		reads(&s, 0, 5, ids);
		reads(&s, 2, 2, ids + 2);
		unreadable(&s, 0, 5, types[k].most, ".bin: token 2 (byte ", "is not in the vocabulary");
		shard_close(&s);
	}
}

static void names_an_id_outside_the_vocabulary(void **state)
{
	write_pair(scratch("neg"), 3, 2, (int64_t[]){5, 4, -3}, 3, (int32_t[]){3}, 1, (int64_t[]){0, 1}, 2);
	struct shard s = opened(scratch("neg"), SHARD_AUTO);
	unreadable(&s, 0, 3, 100, "neg.bin: token 2 (byte 4): id -3", "0 to 99");
	unreadable(&s, 0, 2, 5, "token 0 (byte 0): id 5", "0 to 4");
	shard_close(&s);
	write_pair(scratch("huge"), 5, 8, (int64_t[]){5, INT64_C(1) << 40}, 2, (int32_t[]){2}, 1, (int64_t[]){0, 1}, 2);
	s = opened(scratch("huge"), SHARD_AUTO);
	unreadable(&s, 0, 2, INT32_MAX, "token 1 (byte 8): id 1099511627776", "huge.bin");
	shard_close(&s);
	write_ids(scratch("wide"), 4, (int64_t[]){1, 4000000000}, 2);
	s = opened(scratch("wide"), SHARD_U32);
	unreadable(&s, 0, 2, INT32_MAX, "token 1 (byte 4): id 4000000000", "wide");
	shard_close(&s);
}

/* The pair was written by another program, from the tokens listed in its expected.json. */
static void reads_the_reference_pair(void **state)
{
	static const int64_t begin[] = {1, 43, 29, 88, 63, 82, 45, 35}, end[] = {67, 0, 1, 4, 13, 19, 58};
	char prefix[PATH_ROOM];
	snprintf(prefix, sizeof prefix, "%s/tests/golden/gpt2-tiny/tokens", source_root);
	struct shard s = opened(prefix, SHARD_AUTO);
	assert_int_equal(s.tokens, 129);
	assert_int_equal(s.type, TOKEN_U16);
	assert_int_equal(shard_documents(&s), 2);
	reads(&s, 0, 8, begin);
	reads(&s, 122, 7, end);
	reads(&s, 128, 1, end + 6);
	shard_close(&s);
}

static void llmc_file(const char *path, int64_t magic, int64_t version, int64_t count, int width, int ids)
{
	struct bytes b = {0};
	bytes_number(&b, magic, 4);
	bytes_number(&b, version, 4);
	bytes_number(&b, count, 4);
	while (b.count < 1024)
		bytes_number(&b, 0, 4);
	for (int i = 0; i < ids; i++)
		bytes_number(&b, 1000 * i + 7, width);
	bytes_write(&b, path);
}

static void reads_llmc(void **state)
{
	static const int64_t ids[] = {7, 1007, 2007, 3007};
	for (int wide = 0; wide < 2; wide++) {
		const char *path = scratch("llmc%d.bin", wide);
		llmc_file(path, wide ? 20240801 : 20240520, wide ? 7 : 1, 4, wide ? 4 : 2, 4);
		for (int named = 0; named < 2; named++) {
			struct shard s = opened(path, named ? SHARD_LLMC : SHARD_AUTO);
			assert_int_equal(s.tokens, 4);
			assert_int_equal(shard_documents(&s), -1);
			reads(&s, 0, 4, ids);
			reads(&s, 3, 1, ids + 3);
			unreadable(&s, 0, 4, 2007, wide ? "(byte 1032): id 2007" : "(byte 1028): id 2007", path);
			shard_close(&s);
		}
	}
	llmc_file(scratch("v2.bin"), 20240520, 2, 4, 2, 4);
	refused(scratch("v2.bin"), SHARD_AUTO, "version 2", "v2.bin: byte 4");
	llmc_file(scratch("more.bin"), 20240520, 1, 5, 2, 4);
	refused(scratch("more.bin"), SHARD_AUTO, "byte 8 counts 5 tokens", "1032 bytes long");
	llmc_file(scratch("fewer.bin"), 20240801, 7, 3, 4, 4);
	refused(scratch("fewer.bin"), SHARD_AUTO, "byte 8 counts 3 tokens", "1040 bytes long");
	llmc_file(scratch("minus.bin"), 20240801, 7, -1, 4, 4);
	refused(scratch("minus.bin"), SHARD_AUTO, "byte 8 counts -1 tokens", "truncated");
	write_ids(scratch("head.bin"), 4, (int64_t[]){20240520, 1}, 2);
	refused(scratch("head.bin"), SHARD_AUTO, "head.bin", "truncated");
}

static void reads_headerless_when_it_is_told(void **state)
{
	static const int64_t ids[] = {1, 65535, 3}, as_u32[] = {1, 70000, 2};
	write_ids(scratch("train.bin"), 2, ids, 3);
	struct shard s = opened(scratch("train.bin"), SHARD_U16);
	reads(&s, 0, 3, ids);
	shard_close(&s);
	s = opened(scratch("train"), SHARD_U16); /* as a PREFIX */
	assert_int_equal(s.tokens, 3);
	shard_close(&s);
	write_ids(scratch("wide.bin"), 4, as_u32, 3);
	s = opened(scratch("wide.bin"), SHARD_U32);
	reads(&s, 0, 3, as_u32);
	shard_close(&s);
	refused(scratch("train.bin"), SHARD_AUTO, "data.format = u16", "u32");
	refused(scratch("train.bin"), SHARD_U32, "6 bytes long, not a multiple of 4", "train.bin");
	refused(scratch("train.bin"), SHARD_LLMC, "does not begin with an llm.c magic", "train.bin");
	refused(scratch("train.bin"), SHARD_MEGATRON, "PREFIX.idx", "train.bin");
	refused(scratch("nowhere"), SHARD_AUTO, "no such file", "nowhere.idx");
	refused(scratch("nowhere"), SHARD_U16, "no such file", "nowhere.bin");
	scratch("folder/x");
	refused(scratch("folder"), SHARD_U16, "not a regular file", "folder");
}

static void finds_a_pair_by_each_of_its_names(void **state)
{
	static const char *const names[] = {"pair", "pair.bin", "pair.idx"};
	write_pair(scratch("pair"), 8, 2, (int64_t[]){9, 8}, 2, (int32_t[]){2}, 1, (int64_t[]){0, 1}, 2);
	for (int i = 0; i < 3; i++) {
		struct shard s = opened(scratch("%s", names[i]), SHARD_AUTO);
		assert_int_equal(s.format, SHARD_MEGATRON);
		shard_close(&s);
	}
	unlink(scratch("pair.bin"));
	refused(scratch("pair"), SHARD_AUTO, "pair.bin", "No such file");
}

/* A pair of three sequences (4, 0 and 3 tokens) in two documents; one number of the index changed. */
static void changed_index(const char *prefix, int position, int64_t value, int width)
{
	char path[600];
	write_pair(prefix, 8, 2, (int64_t[]){1, 2, 3, 4, 5, 6, 7}, 7, (int32_t[]){4, 0, 3}, 3, (int64_t[]){0, 2, 3}, 3);
	snprintf(path, sizeof path, "%s.idx", prefix);
	struct bytes b = bytes_read(path), number = {0};
	bytes_number(&number, value, width);
	memcpy(b.data + position, number.data, (size_t)width);
	bytes_free(&number);
	bytes_write(&b, path);
}

enum { LENGTHS = 34, OFFSETS = LENGTHS + 12, DOCUMENTS = OFFSETS + 24 };

static void refuses_a_bad_header(void **state)
{
	static const struct {
		int position, width;
		int64_t value;
		const char *part;
	} cases[] = {
		{0, 1, 'm', "does not begin with MMIDIDX"},
		{8, 1, 1, "does not begin with MMIDIDX"},
		{9, 8, 2, "byte 9: version 2"},
		{17, 1, 0, "byte 17: type code 0"},
		{17, 1, 6, "byte 17: type code 6"},
		{17, 1, 7, "byte 17: type code 7"},
		{17, 1, 9, "byte 17: type code 9"},
		{18, 8, 4, "4 sequences and 3 document boundaries, which need"},
		{18, 8, 2, "more than 2 sequences and 3 document boundaries"},
		{18, 8, INT64_C(1) << 61, "2305843009213693952 sequences"},
		{18, 8, -1, "18446744073709551615 sequences"},
		{26, 8, 4, "4 document boundaries, which need"},
		{26, 8, INT64_MIN, "9223372036854775808"},
		{DOCUMENTS, 8, 1, "document boundaries run from 1 to 3"},
		{DOCUMENTS + 16, 8, 2, "document boundaries run from 0 to 2"},
		{OFFSETS, 8, 2, "sequence 0 begins at byte 2"},
		{OFFSETS + 16, 8, 10, "sequence 2, the last, begins at byte 10"},
		{OFFSETS + 16, 8, -8, "sequence 2, the last, begins at byte -8"},
		{OFFSETS + 16, 8, INT64_MAX, "sequence 2, the last"},
		{LENGTHS + 8, 4, 4, "and has 4 tokens"},
		{LENGTHS + 8, 4, -3, "and has -3 tokens"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *prefix = scratch("header");
		changed_index(prefix, cases[i].position, cases[i].value, cases[i].width);
		refused(prefix, SHARD_AUTO, "header.idx: ", cases[i].part);
	}
}

static void refuses_sizes_that_disagree(void **state)
{
	for (size_t keep = 0; keep < 34 + 12 * 3 + 8 * 3; keep++) { /* an index cut anywhere */
		changed_index(scratch("size"), 0, 'M', 1);
		assert_int_equal(truncate(scratch("size.idx"), (off_t)keep), 0);
		refused(scratch("size"), SHARD_AUTO, "size.idx: ", "");
	}
	changed_index(scratch("size"), 0, 'M', 1);
	assert_int_equal(truncate(scratch("size.idx"), 34 + 12 * 3 + 8 * 3 + 1), 0);
	refused(scratch("size"), SHARD_AUTO, "1 more than 3 sequences", "size.idx");
	assert_int_equal(truncate(scratch("size.idx"), 34 + 12 * 3 + 8 * 3 + 3), 0);
	refused(scratch("size"), SHARD_AUTO, "a mode for each sequence", "size.idx");
	for (int keep = 0; keep <= 15; keep++) {
		if (keep == 14)
			continue;
		changed_index(scratch("size"), 0, 'M', 1);
		assert_int_equal(truncate(scratch("size.bin"), keep), 0);
		refused(scratch("size"), SHARD_AUTO,
			keep % 2 ? "not a multiple of 2" : "size.idx: sequence 2, the last,", "truncated");
	}
	struct bytes b = index_bytes(8, 2, NULL, 0, (int64_t[]){0}, 1);
	bytes_write(&b, scratch("none.idx"));
	write_text(scratch("none.bin"), "");
	struct shard s = opened(scratch("none"), SHARD_AUTO);
	assert_int_equal(s.tokens, 0);
	shard_close(&s);
	write_text(scratch("none.bin"), "ab");
	refused(scratch("none"), SHARD_AUTO, "none.idx: has no sequences", "2 bytes long");
}

/* What only concerns one sequence is found when it is read, and no earlier; the last case also leads the search
 * astray. */
static void refuses_the_entries_it_uses(void **state)
{
	static const struct {
		int position, width;
		int64_t value;
		const char *part;
	} cases[] = {
		{LENGTHS, 4, 5, "sequence 1 begins at byte 8, but sequence 0 ends at byte 10: they overlap"},
		{LENGTHS, 4, 3, "sequence 1 begins at byte 8, but sequence 0 ends at byte 6: the bytes between"},
		{LENGTHS, 4, -1, "sequence 0 has -1 tokens"},
		{LENGTHS, 4, INT32_MAX, "sequence 0 begins at byte 0 and has 2147483647 tokens"},
		{LENGTHS + 4, 4, 1, "sequence 2 begins at byte 8, but sequence 1 ends at byte 10: they overlap"},
		{OFFSETS + 8, 8, 6, "sequence 1 begins at byte 6, but sequence 0 ends at byte 8: they overlap"},
		{OFFSETS + 8, 8, 7, "sequence 1 begins at byte 7"},
		{OFFSETS + 8, 8, -2, "sequence 1 begins at byte -2"},
		{OFFSETS + 8, 8, 1000, "sequence 1 begins at byte 1000: out of range"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *prefix = scratch("entry");
		changed_index(prefix, cases[i].position, cases[i].value, cases[i].width);
		struct shard s = opened(prefix, SHARD_AUTO);
		struct error e = {0};
		unreadable(&s, 0, 7, 100, "entry.idx: ", cases[i].part);
		if (i + 1 < sizeof cases / sizeof *cases)
			reads(&s, 5, 2, (int64_t[]){6, 7});
		assert_false(shard_index_scan(&s.index, &e));
		shard_close(&s);
	}
	changed_index(scratch("entry"), DOCUMENTS + 8, 4, 8);
	struct shard s = opened(scratch("entry"), SHARD_AUTO);
	struct error e = {0};
	int64_t before, after;
	reads(&s, 0, 7, (int64_t[]){1, 2, 3, 4, 5, 6, 7}); /* documents are not looked at */
	assert_false(shard_index_around(&s.index, 3, &before, &after, &e));
	assert_non_null(strstr(e.text, "document boundary 1 is sequence 4"));
	assert_false(shard_index_scan(&s.index, &e));
	assert_non_null(strstr(e.text, "document boundary 1 is sequence 4"));
	shard_close(&s);
}

/* Each alone is in order with its neighbours, so only a look at the entry itself tells. */
static void refuses_entries_that_deceive(void **state)
{
	static const int64_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
	static const int32_t lengths[] = {2, 2, 2, 2};
	struct error e = {0};
	int64_t before, after;
	write_pair(scratch("inside"), 8, 2, ids, 8, lengths, 4, (int64_t[]){0, 4}, 2);
	struct bytes b = bytes_read(scratch("inside.idx"));
	b.data[34 + 16 + 8] = 5; /* sequence 1 at bytes 5 … 8, sequence 2 from 9 on */
	b.data[34 + 16 + 16] = 9;
	bytes_write(&b, scratch("inside.idx"));
	struct shard s = opened(scratch("inside"), SHARD_AUTO);
	unreadable(&s, 3, 1, 100, "inside.idx: sequence 1 begins at byte 5, inside a token", "");
	shard_close(&s);
	write_pair(scratch("back"), 8, 2, ids, 8, lengths, 4, (int64_t[]){0, 3, 1, 4}, 4);
	s = opened(scratch("back"), SHARD_AUTO);
	assert_false(shard_index_around(&s.index, 7, &before, &after, &e));
	assert_non_null(strstr(e.text, "back.idx: document 2 begins at token 2: out of order"));
	assert_false(shard_index_scan(&s.index, &e));
	assert_non_null(strstr(e.text, "document boundary 2 is sequence 1: before the one in front of it, 3"));
	shard_close(&s);
}

/* Any stretch of a shard with many sequences, empty ones too, and any document begin, against plain arrays. */
static void reads_any_stretch(void **state)
{
	enum { SEQUENCES = 60 };
	int32_t lengths[SEQUENCES];
	int64_t ids[400], documents[SEQUENCES], begins[SEQUENCES], count = 0, boundaries = 0;
	uint32_t x = 12345;
	for (int i = 0; i < SEQUENCES; i++) {
		if (i == 0 || i % 3 == 1) {
			documents[boundaries] = i;
			begins[boundaries++] = count;
		}
		x = x * 1664525u + 1013904223u;
		lengths[i] = (int32_t)(x >> 24) % 4 == 0 ? 0 : (int32_t)(x >> 28);
		for (int32_t j = 0; j < lengths[i]; j++, count++)
			ids[count] = (count * 37) % 211;
	}
	documents[boundaries++] = SEQUENCES;
	write_pair(scratch("any"), 4, 4, ids, count, lengths, SEQUENCES, documents, boundaries);
	struct shard s = opened(scratch("any"), SHARD_AUTO);
	struct error e = {0};
	assert_int_equal(s.tokens, count);
	assert_true(shard_index_scan(&s.index, &e));
	for (int64_t begin = 0; begin < count; begin++) {
		int64_t before, after, expected = 0, d = 0;
		for (int64_t n = 1; n <= count - begin; n++)
			reads(&s, begin, n, ids + begin);
		assert_true(shard_index_around(&s.index, begin, &before, &after, &e));
		for (; d < boundaries - 1 && begins[d] <= begin; d++)
			expected = begins[d];
		assert_int_equal(before, expected);
		assert_int_equal(after, d < boundaries - 1 ? begins[d] : count);
	}
	shard_close(&s);
}

/* A stretch longer than what is read at once. */
static void reads_a_long_stretch(void **state)
{
	enum { COUNT = 100000 };
	static int64_t ids[COUNT];
	static int32_t out[COUNT];
	struct error e = {0};
	for (int i = 0; i < COUNT; i++)
		ids[i] = i * 7 % 50257;
	write_ids(scratch("far"), 2, ids, COUNT);
	struct shard s = opened(scratch("far"), SHARD_U16);
	assert_true(shard_read(&s, 3, COUNT - 3, 50257, out, &e));
	for (int i = 3; i < COUNT; i++)
		assert_int_equal(out[i - 3], ids[i]);
	assert_false(shard_read(&s, 0, COUNT, 50256, out, &e));
	assert_non_null(strstr(e.text, "id 50256 is not in"));
	shard_close(&s);
}

static long resident_kib(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

/* Five sequences of 2³¹ − 1 tokens: 10.7 billion, 21 GB that are holes but for what is written here. */
static void reads_beyond_two_to_the_33(void **state)
{
	static const int64_t at[] = {0, INT64_C(1) << 31, (INT64_C(1) << 33) + 5, INT64_C(5) * INT32_MAX - 2};
	int32_t lengths[5];
	for (int i = 0; i < 5; i++)
		lengths[i] = INT32_MAX;
	struct bytes b = index_bytes(8, 2, lengths, 5, (int64_t[]){0, 2, 5}, 3);
	bytes_write(&b, scratch("sparse.idx"));
	int fd = open(scratch("sparse.bin"), O_RDWR | O_CREAT | O_TRUNC, 0666);
	assert_int_equal(ftruncate(fd, INT64_C(10) * INT32_MAX), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pwrite(fd, (unsigned char[]){(unsigned char)(i + 1), 1, 9, 0}, 4, at[i] * 2), 4);
	close(fd);
	long before = resident_kib();
	struct shard s = opened(scratch("sparse"), SHARD_AUTO);
	assert_int_equal(s.tokens, INT64_C(5) * INT32_MAX);
	for (int i = 0; i < 4; i++)
		reads(&s, at[i], 2, (int64_t[]){257 + i, 9});
	reads(&s, INT32_MAX - 1, 4, (int64_t[]){0, 0, 258, 9});
	struct error e;
	int64_t document, next;
	assert_true(shard_index_around(&s.index, (INT64_C(1) << 33), &document, &next, &e));
	assert_int_equal(document, INT64_C(2) * INT32_MAX);
	assert_int_equal(next, s.tokens);
	assert_true(resident_kib() - before < 10000);
	shard_close(&s);
	unlink(scratch("sparse.bin"));
}

static void notices_that_a_file_became_shorter(void **state)
{
	write_ids(scratch("short"), 2, (int64_t[]){1, 2, 3, 4}, 4);
	struct shard s = opened(scratch("short"), SHARD_U16);
	assert_int_equal(truncate(scratch("short"), 5), 0);
	reads(&s, 0, 2, (int64_t[]){1, 2});
	unreadable(&s, 0, 4, 10, "short: ends in front of byte 8", "shorter since it was opened");
	shard_close(&s);
}

static void opens_more_files_than_the_soft_limit(void **state)
{
	struct rlimit old, low;
	struct shard s[40];
	getrlimit(RLIMIT_NOFILE, &old);
	low = (struct rlimit){20, old.rlim_max};
	write_ids(scratch("one"), 2, (int64_t[]){1}, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	for (int i = 0; i < 40; i++)
		s[i] = opened(scratch("one"), SHARD_U16);
	for (int i = 0; i < 40; i++)
		shard_close(&s[i]);
	setrlimit(RLIMIT_NOFILE, &old);
}

static void facts(const char *text)
{
	write_pair(scratch("facts"), 8, 2, (int64_t[]){9, 8}, 2, (int32_t[]){2}, 1, (int64_t[]){0, 1}, 2);
	write_text(scratch("facts.json"), text);
}

static void reads_facts(void **state)
{
	facts("{\"tokenizer\":\"bytes\",\"vocab_size\":257,\"end_of_document\":256,\"documents\":1,\"tokens\":2}\n");
	struct shard s = opened(scratch("facts"), SHARD_AUTO);
	assert_string_equal(s.facts.tokenizer, "bytes");
	assert_int_equal(s.facts.vocab, 257);
	assert_int_equal(s.facts.end_of_document, 256);
	shard_close(&s);
	facts("{\"vocab_size\": 300, \"more\": [1]}");
	s = opened(scratch("facts"), SHARD_AUTO);
	assert_int_equal(s.facts.vocab, 300);
	assert_int_equal(s.facts.end_of_document, -1);
	assert_string_equal(s.facts.tokenizer, "");
	shard_close(&s);
	facts("{\"vocab_size\":257,\"tokens\":3}");
	refused(scratch("facts"), SHARD_AUTO, "facts.json: counts", "do not belong together");
	facts("{\"vocab_size\":257,\"documents\":2}");
	refused(scratch("facts"), SHARD_AUTO, "facts.json: counts", "do not belong together");
	static const char *const bad[][2] = {
		{"", "not JSON"},
		{"[1]", "not a JSON object"},
		{"{\"vocab_size\":257", "not JSON"},
		{"{\"vocab_size\":257}{}", "text after the JSON value"},
		{"{\"vocab_size\":257,\"vocab_size\":258}", "is there twice"},
		{"{\"tokenizer\":\"bytes\"}", "no vocab_size"},
		{"{\"vocab_size\":\"257\"}", "vocab_size must be a whole number"},
		{"{\"vocab_size\":0}", "vocab_size must be a whole number"},
		{"{\"vocab_size\":2.5}", "vocab_size must be a whole number"},
		{"{\"vocab_size\":1e30}", "vocab_size must be a whole number"},
		{"{\"vocab_size\":257,\"end_of_document\":257}",
		 "end_of_document must be a whole number from 0 to 256"},
		{"{\"vocab_size\":257,\"end_of_document\":-1}", "end_of_document must be"},
		{"{\"vocab_size\":257,\"tokenizer\":5}", "tokenizer must be a name"},
		{"{\"vocab_size\":257,\"tokens\":-1}", "tokens must be"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		facts(bad[i][0]);
		refused(scratch("facts"), SHARD_AUTO, "facts.json: ", bad[i][1]);
	}
}

static void knows_format_names(void **state)
{
	enum shard_format f;
	struct error e = {0};
	assert_true(shard_format_of("", &f, &e) && f == SHARD_AUTO);
	assert_true(shard_format_of(NULL, &f, &e) && f == SHARD_AUTO);
	assert_true(shard_format_of("llmc", &f, &e) && f == SHARD_LLMC);
	assert_false(shard_format_of("megatrom", &f, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_non_null(strstr(e.text, "did you mean megatron?"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_integer_type),
		cmocka_unit_test(names_an_id_outside_the_vocabulary),
		cmocka_unit_test(reads_the_reference_pair),
		cmocka_unit_test(reads_llmc),
		cmocka_unit_test(reads_headerless_when_it_is_told),
		cmocka_unit_test(finds_a_pair_by_each_of_its_names),
		cmocka_unit_test(refuses_a_bad_header),
		cmocka_unit_test(refuses_sizes_that_disagree),
		cmocka_unit_test(refuses_the_entries_it_uses),
		cmocka_unit_test(refuses_entries_that_deceive),
		cmocka_unit_test(reads_any_stretch),
		cmocka_unit_test(reads_a_long_stretch),
		cmocka_unit_test(reads_beyond_two_to_the_33),
		cmocka_unit_test(notices_that_a_file_became_shorter),
		cmocka_unit_test(opens_more_files_than_the_soft_limit),
		cmocka_unit_test(reads_facts),
		cmocka_unit_test(knows_format_names),
	};
	source_root = argv[1];
	return cmocka_run_group_tests(tests, shard_files_open, shard_files_close);
}

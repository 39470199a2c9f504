#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_files.h"
#include "train/data.h"
#include "train/data_list.h"
#include "train/order.h"

enum { SEED = 1234, MOST = 64 };

/* Documents of the lengths given; ids count up from `first`. */
static void pair(const char *prefix, int64_t first, const int32_t *lengths, int documents)
{
	int64_t ids[2000], begins[101], count = 0;
	for (int i = 0; i < documents; i++)
		count += lengths[i];
	for (int64_t i = 0; i < count; i++)
		ids[i] = first + i;
	for (int i = 0; i <= documents; i++)
		begins[i] = i;
	write_pair(prefix, 8, 2, ids, count, lengths, documents, begins, documents + 1);
}

static void one(const char *prefix, int64_t first, int32_t tokens)
{
	pair(prefix, first, &tokens, 1);
}

static void open_with(struct data *d, struct data_settings s, int64_t sequence, int64_t vocab)
{
	struct error e = {0};
	if (!data_open(d, &s, SEED, sequence, vocab, &e))
		fail_msg("%s", e.text);
}

static void refused(struct data_settings s, int64_t sequence, int64_t vocab, int code, const char *part)
{
	struct data d;
	struct error e = {0};
	assert_false(data_open(&d, &s, SEED, sequence, vocab, &e));
	assert_int_equal(e.code, code);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" has no \"%s\"", e.text, part);
}

/* Window k of ids that count up from `first`, with T tokens. */
static void is_window(const int32_t *inputs, const int32_t *targets, int64_t first, int64_t k, int64_t sequence)
{
	for (int64_t i = 0; i < sequence; i++) {
		assert_int_equal(inputs[i], first + k * sequence + i);
		assert_int_equal(targets[i], first + k * sequence + i + 1);
	}
}

static void gives_each_window_once_an_epoch(void **state)
{
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	for (int32_t tokens = 41; tokens <= 50; tokens++) { /* ⌊(N−1)/10⌋: 4 windows up to 50 tokens */
		one(scratch("once"), 100, tokens);
		open_with(&d, (struct data_settings){.train = scratch("once")}, 10, 1000);
		assert_int_equal(d.windows, 4);
		assert_int_equal(d.tokens, tokens);
		assert_int_equal(d.documents, 1);
		assert_int_equal(d.valid_windows, 0);
		for (int64_t epoch = 0; epoch < 5; epoch++) {
			int seen = 0;
			for (int64_t i = 0; i < 4; i++) {
				assert_true(data_read(&d, epoch * 4 + i, inputs, targets, &e));
				int64_t window = (inputs[0] - 100) / 10;
				is_window(inputs, targets, 100, window, 10);
				assert_int_equal(window, order_window(SEED, 0, epoch, 4, i));
				seen |= 1 << window;
			}
			assert_int_equal(seen, 15);
		}
		data_close(&d);
	}
	one(scratch("once"), 100, 40);
	open_with(&d, (struct data_settings){.train = scratch("once")}, 10, 1000);
	assert_int_equal(d.windows, 3);
	data_close(&d);
	one(scratch("once"), 100, 11);
	open_with(&d, (struct data_settings){.train = scratch("once")}, 10, 1000);
	assert_int_equal(d.windows, 1);
	data_close(&d);
	one(scratch("once"), 100, 10);
	refused((struct data_settings){.train = scratch("once")}, 10, 1000, CODE_DATA, "fewer than one window");
}

/* Files of a source end to end: windows run over the border. */
static void joins_files_of_a_source(void **state)
{
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	char both[600];
	one(scratch("j1"), 0, 13);
	one(scratch("j2"), 13, 9);
	one(scratch("j3"), 22, 19);
	snprintf(both, sizeof both, " %s ,%s,%s", scratch("j1"), scratch("j2"), scratch("j3.bin"));
	for (int k = 0; k < 2; k++) {
		open_with(&d, (struct data_settings){.train = k ? scratch("j?") : both}, 10, 1000);
		assert_int_equal(d.sources, 1);
		assert_int_equal(d.windows, 4);
		assert_int_equal(d.documents, 3);
		for (int64_t n = 0; n < 4; n++) {
			assert_true(data_read(&d, n, inputs, targets, &e));
			is_window(inputs, targets, 0, inputs[0] / 10, 10);
		}
		data_close(&d);
	}
}

static void blends_sources(void **state)
{
	int32_t inputs[MOST], targets[MOST];
	int64_t taken[2] = {0, 0}, counted[2];
	struct error e = {0};
	struct data d;
	char blend[600];
	one(scratch("b1"), 0, 51);
	one(scratch("b2"), 500, 301);
	snprintf(blend, sizeof blend, "0.25:%s, 0.75: %s", scratch("b1"), scratch("b2"));
	open_with(&d, (struct data_settings){.train = blend}, 10, 1000);
	assert_int_equal(d.sources, 2);
	assert_int_equal(d.windows, 35);
	for (int64_t n = 0; n < 400; n++) {
		data_taken(&d, n, counted);
		assert_memory_equal(counted, taken, sizeof taken);
		assert_true(data_check_taken(&d, n, taken, 2, &e));
		assert_true(data_read(&d, n, inputs, targets, &e));
		int source = inputs[0] >= 500;
		int64_t windows = source ? 30 : 5, first = source ? 500 : 0;
		struct data_place at = data_find(&d, n);
		assert_int_equal(at.source, source);
		assert_int_equal(at.epoch, taken[source] / windows);
		assert_int_equal(at.window, order_window(SEED, source, at.epoch, windows, taken[source] % windows));
		is_window(inputs, targets, first, at.window, 10);
		taken[source]++;
		assert_true(labs(taken[0] * 4 - (n + 1)) <= 4);
	}
	assert_int_equal(taken[0], 100); /* 20 epochs of the small source, 10 of the large one */
	assert_false(data_check_taken(&d, 400, (int64_t[]){101, 299}, 2, &e));
	assert_non_null(strstr(e.text, "source 1"));
	assert_non_null(strstr(e.text, "has given 100, but in the checkpoint 101"));
	assert_false(data_check_taken(&d, 400, taken, 1, &e));
	assert_non_null(strstr(e.text, "2 sources"));
	data_close(&d);
}

/* Another order of reading, as other data ranks and a resumed run have, gives the same samples. */
static void gives_a_sample_whenever_it_is_asked(void **state)
{
	static int32_t inputs[200][10], targets[200][10];
	int32_t in[MOST], out[MOST];
	struct error e = {0};
	struct data d;
	char blend[600];
	one(scratch("w1"), 0, 71);
	one(scratch("w2"), 500, 201);
	snprintf(blend, sizeof blend, "3:%s,7:%s", scratch("w1"), scratch("w2"));
	open_with(&d, (struct data_settings){.train = blend}, 10, 1000);
	for (int n = 0; n < 200; n++)
		assert_true(data_read(&d, n, inputs[n], targets[n], &e));
	for (int k = 0; k < 200; k++) {
		int n = k * 77 % 200;
		assert_true(data_read(&d, n, in, out, &e));
		assert_memory_equal(in, inputs[n], sizeof inputs[n]);
		assert_memory_equal(out, targets[n], sizeof targets[n]);
	}
	data_close(&d);
	open_with(&d, (struct data_settings){.train = blend}, 10, 1000);
	assert_true(data_read(&d, 150, in, out, &e));
	assert_memory_equal(in, inputs[150], sizeof inputs[150]);
	data_close(&d);
}

static void reads_valid_in_file_order(void **state)
{
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	char valid[600];
	one(scratch("t"), 0, 101);
	one(scratch("v1"), 300, 15);
	one(scratch("v2"), 315, 20);
	snprintf(valid, sizeof valid, "%s, %s", scratch("v1"), scratch("v2"));
	open_with(&d, (struct data_settings){.train = scratch("t"), .valid = valid}, 10, 1000);
	assert_int_equal(d.valid_windows, 3);
	for (int64_t k = 0; k < 3; k++) {
		assert_true(data_read_valid(&d, k, inputs, targets, &e));
		is_window(inputs, targets, 300, k, 10);
	}
	data_close(&d);
	struct data_settings s = {.train = scratch("t"), .valid = scratch("v1"), .split = "9,1"};
	refused(s, 10, 1000, CODE_USAGE, "data.valid and data.split are both given");
	snprintf(valid, sizeof valid, "1:%s", scratch("v1"));
	refused((struct data_settings){.train = scratch("t"), .valid = valid}, 10, 1000, CODE_USAGE,
		"weight has no use");
	refused((struct data_settings){.train = scratch("t"), .valid = scratch("v1")}, 15, 1000, CODE_DATA,
		"15 tokens for valid from token 0 on: fewer than one window");
}

/* No window of train has a token of valid and the other way round: both are made of whole documents. */
static void splits_by_document(void **state)
{
	static const int32_t lengths[] = {30, 25, 7, 0, 40, 18, 30};
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	pair(scratch("s"), 0, lengths, 7); /* begins: 0 30 55 62 62 102 120, 150 tokens */
	open_with(&d, (struct data_settings){.train = scratch("s"), .split = "80,20"}, 10, 1000);
	assert_int_equal(d.tokens, 120); /* 0.8·150 = 120 is a document begin */
	assert_int_equal(d.windows, 11);
	assert_int_equal(d.valid_windows, 2);
	for (int64_t n = 0; n < 11; n++) {
		assert_true(data_read(&d, n, inputs, targets, &e));
		assert_true(targets[9] < 120);
	}
	for (int64_t k = 0; k < 2; k++) {
		assert_true(data_read_valid(&d, k, inputs, targets, &e));
		is_window(inputs, targets, 120, k, 10);
	}
	data_close(&d);
	open_with(&d, (struct data_settings){.train = scratch("s"), .split = "1, 1"}, 10, 1000);
	assert_int_equal(d.tokens, 62); /* the last begin at or before 75 */
	data_close(&d);
	open_with(&d, (struct data_settings){.train = scratch("s"), .split = "1,99"}, 10, 1000);
	assert_int_equal(d.tokens, 30); /* never nothing: the first begin after 1 */
	data_close(&d);
	refused((struct data_settings){.train = scratch("s"), .split = "1,99"}, 30, 1000, CODE_DATA,
		"30 tokens for train from token 0 on: fewer than one window");
	refused((struct data_settings){.train = scratch("s"), .split = "99,1"}, 80, 1000, CODE_DATA,
		"too few for data.split");
}

static void splits_each_source_of_a_blend(void **state)
{
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	char blend[600];
	pair(scratch("x1"), 0, (const int32_t[]){40, 25}, 2);
	pair(scratch("x2"), 500, (const int32_t[]){60, 35}, 2);
	snprintf(blend, sizeof blend, "1:%s,1:%s", scratch("x1"), scratch("x2"));
	open_with(&d, (struct data_settings){.train = blend, .split = "7,3"}, 10, 1000);
	assert_int_equal(d.windows, 3 + 5);
	assert_int_equal(d.valid_windows, 2 + 3);
	for (int64_t k = 0; k < 5; k++) {
		assert_true(data_read_valid(&d, k, inputs, targets, &e));
		is_window(inputs, targets, k < 2 ? 40 : 560, k < 2 ? k : k - 2, 10);
	}
	data_close(&d);
}

static void splits_without_documents(void **state)
{
	int64_t ids[101];
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	for (int i = 0; i < 101; i++)
		ids[i] = i;
	write_ids(scratch("flat"), 2, ids, 101);
	struct data_settings s = {.train = scratch("flat"), .split = "75,25", .format = "u16"};
	open_with(&d, s, 10, 1000); /* ten windows: 7 and 3 */
	assert_int_equal(d.documents, -1);
	assert_int_equal(d.windows, 7);
	assert_int_equal(d.valid_windows, 3);
	assert_true(data_read_valid(&d, 0, inputs, targets, &e));
	is_window(inputs, targets, 70, 0, 10);
	data_close(&d);
	s.end_of_document = "42"; /* closes the document of tokens 0 … 42 */
	open_with(&d, s, 10, 1000);
	assert_int_equal(d.tokens, 43);
	assert_true(data_read_valid(&d, 0, inputs, targets, &e));
	is_window(inputs, targets, 43, 0, 10);
	data_close(&d);
	s.split = "1e18,1";
	s.end_of_document = "";
	open_with(&d, s, 10, 1000);
	assert_int_equal(d.valid_windows, 1);
	data_close(&d);
	static const char *const bad[] = {"99", "99,", "99,1,1", "99,0", "-1,2", "a,b", ",1", "nan,1"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		s.split = bad[i];
		refused(s, 10, 1000, CODE_USAGE, "two numbers above 0, such as 99,1");
	}
}

static void masks_what_follows_the_end_of_a_document(void **state)
{
	static const int64_t ids[] = {7, 5, 9, 9, 6, 5, 8};
	static const int32_t masked[] = {5, 9, -1, -1, 5, 8}, plain[] = {5, 9, 9, 6, 5, 8};
	int32_t inputs[6], targets[6];
	struct error e = {0};
	struct data d;
	write_ids(scratch("mask"), 2, ids, 7);
	struct data_settings s = {.train = scratch("mask"), .format = "u16", .end_of_document = "9"};
	for (int on = 0; on < 2; on++) {
		s.mask_end_of_document = on;
		open_with(&d, s, 6, 10);
		assert_int_equal(d.end_of_document, 9);
		assert_true(data_read(&d, 0, inputs, targets, &e));
		for (int i = 0; i < 6; i++) {
			assert_int_equal(inputs[i], ids[i]);
			assert_int_equal(targets[i], on ? masked[i] : plain[i]);
		}
		data_close(&d);
	}
	s.end_of_document = "";
	refused(s, 6, 10, CODE_USAGE, "data.mask_end_of_document");
	s.end_of_document = "10";
	refused(s, 6, 10, CODE_USAGE, "data.end_of_document = 10");
	s.end_of_document = "nine";
	refused(s, 6, 10, CODE_USAGE, "data.end_of_document = nine");
}

static void takes_the_vocabulary_from_the_data(void **state)
{
	struct data d;
	char both[600];
	one(scratch("p"), 0, 20);
	one(scratch("q"), 0, 20);
	struct data_settings s = {.train = scratch("p")};
	refused(s, 4, 0, CODE_USAGE, "model.vocab is not given");
	refused(s, 4, INT64_C(1) << 31, CODE_USAGE, "model.vocab = 2147483648");
	s.tokenizer = "bytes";
	open_with(&d, s, 4, 0);
	assert_int_equal(d.vocab, 257);
	assert_int_equal(d.end_of_document, 256);
	data_close(&d);
	s.tokenizer = "words.json";
	refused(s, 4, 0, CODE_USAGE, "data.tokenizer = words.json");
	s.tokenizer = "";
	write_text(scratch("p.json"), "{\"tokenizer\":\"other\",\"vocab_size\":300,\"end_of_document\":3}");
	open_with(&d, s, 4, 0);
	assert_int_equal(d.vocab, 300);
	assert_int_equal(d.end_of_document, 3);
	data_close(&d);
	open_with(&d, s, 4, 384); /* a model may have more */
	assert_int_equal(d.vocab, 384);
	data_close(&d);
	refused(s, 4, 299, CODE_DATA, "beyond model.vocab = 299");
	s.end_of_document = "4";
	refused(s, 4, 0, CODE_USAGE, "data.end_of_document = 4, but the data's tokenizer has 3");
	s = (struct data_settings){.train = scratch("p"), .tokenizer = "bytes"};
	refused(s, 4, 0, CODE_DATA,
		"p.bin: tokenizer \"other\", 300 ids, end of document 3, but data.tokenizer has \"bytes\"");
	write_text(scratch("q.json"), "{\"tokenizer\":\"other\",\"vocab_size\":301}");
	snprintf(both, sizeof both, "1:%s,1:%s", scratch("p"), scratch("q"));
	refused((struct data_settings){.train = both}, 4, 0, CODE_DATA, "one model cannot read both");
	refused((struct data_settings){.train = scratch("p"), .valid = scratch("q")}, 4, 0, CODE_DATA,
		"one model cannot read both");
}

static void names_the_id_that_is_too_large(void **state)
{
	int32_t inputs[MOST], targets[MOST];
	struct error e = {0};
	struct data d;
	one(scratch("big"), 90, 21); /* ids 90 … 110 */
	open_with(&d, (struct data_settings){.train = scratch("big")}, 10, 101);
	int bad = 0;
	for (int64_t n = 0; n < 2; n++)
		if (!data_read(&d, n, inputs, targets, &e))
			bad++;
	assert_int_equal(bad, 1);
	assert_int_equal(e.code, CODE_DATA);
	assert_non_null(strstr(e.text, "big.bin: token 11 (byte 22): id 101 is not in the vocabulary, 0 to 100"));
	data_close(&d);
}

static void refuses_bad_names(void **state)
{
	refused((struct data_settings){.train = NULL}, 4, 10, CODE_USAGE, "data.train");
	refused((struct data_settings){.train = "a,,b"}, 4, 10, CODE_USAGE, "entry 2 names no file");
	refused((struct data_settings){.train = "1:a,b"}, 4, 10, CODE_USAGE, "1 of 2 entries have a weight");
	refused((struct data_settings){.train = "1:"}, 4, 10, CODE_USAGE, "entry 1 names no file");
	refused((struct data_settings){.train = "0:a,1:b"}, 4, 10, CODE_USAGE, "weight 0:");
	refused((struct data_settings){.train = "not/there"}, 4, 10, CODE_DATA, "not/there: no such file");
	refused((struct data_settings){.train = "a", .format = "llm"}, 4, 10, CODE_USAGE, "did you mean llmc?");
	struct data_list l;
	struct error e = {0};
	assert_true(data_list_init(&l, "data.train", "dir:0/a b , c: d", &e));
	assert_int_equal(l.count, 2);
	assert_string_equal(l.names[0], "dir:0/a b");
	assert_string_equal(l.names[1], "c: d");
	assert_null(l.weights[0]);
	data_list_finish(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_each_window_once_an_epoch),
		cmocka_unit_test(joins_files_of_a_source),
		cmocka_unit_test(blends_sources),
		cmocka_unit_test(gives_a_sample_whenever_it_is_asked),
		cmocka_unit_test(reads_valid_in_file_order),
		cmocka_unit_test(splits_by_document),
		cmocka_unit_test(splits_each_source_of_a_blend),
		cmocka_unit_test(splits_without_documents),
		cmocka_unit_test(masks_what_follows_the_end_of_a_document),
		cmocka_unit_test(takes_the_vocabulary_from_the_data),
		cmocka_unit_test(names_the_id_that_is_too_large),
		cmocka_unit_test(refuses_bad_names),
	};
	return cmocka_run_group_tests(tests, shard_files_open, shard_files_close);
}

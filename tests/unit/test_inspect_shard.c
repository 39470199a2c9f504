#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "commands/inspect.h"
#include "shard_files.h"

/* What it finds, as JSON, and whether it was good. */
static bool found(const char *name, char *text, size_t room, struct error *e)
{
	cJSON *out = cJSON_CreateObject();
	*e = (struct error){0};
	bool good = inspect_shard(out, name, e);
	assert_true(cJSON_PrintPreallocated(out, text, (int)room, false));
	cJSON_Delete(out);
	return good;
}

static void pair(const char *prefix, const int64_t *ids)
{
	write_pair(prefix, 4, 4, ids, 6, (int32_t[]){3, 1, 2}, 3, (int64_t[]){0, 2, 2, 3}, 4);
}

static void describes_a_pair(void **state)
{
	char text[2000], expected[2000];
	struct error e;
	pair(scratch("good"), (int64_t[]){5, 9, 12, 4, 70000, 6});
	assert_true(found(scratch("good"), text, sizeof text, &e));
	snprintf(expected, sizeof expected,
		 "{\"kind\":\"shard\",\"path\":\"%s\",\"format\":\"megatron\",\"type\":\"i32\",\"tokens\":6,\"sequences\":3,"
		 "\"documents\":3,\"shortest_document\":0,\"longest_document\":4,\"least_id\":4,\"most_id\":70000}",
		 scratch("good.bin"));
	assert_string_equal(text, expected);
	assert_true(found(scratch("good.idx"), text, sizeof text, &e));
	assert_string_equal(text, expected);
	write_text(scratch("good.json"), "{\"tokenizer\":\"words\",\"vocab_size\":70001,\"end_of_document\":6}");
	assert_true(found(scratch("good"), text, sizeof text, &e));
	assert_non_null(
		strstr(text, "\"tokenizer\":\"words\",\"vocab_size\":70001,\"end_of_document\":6,\"least_id\":4"));
}

static void finds_the_first_bad_id(void **state)
{
	char text[2000];
	struct error e;
	pair(scratch("bad"), (int64_t[]){5, 9, 300, 4, 70000, 6});
	write_text(scratch("bad.json"), "{\"vocab_size\":300}");
	assert_false(found(scratch("bad"), text, sizeof text, &e));
	assert_int_equal(e.code, CODE_DATA);
	assert_non_null(strstr(e.text, "bad.bin: token 2 (byte 8): id 300"));
	assert_non_null(
		strstr(text, "\"most_id\":70000,\"first_bad_token\":2,\"first_bad_byte\":8,\"first_bad_id\":300}"));
	pair(scratch("minus"), (int64_t[]){5, 9, 12, 4, 70000, -6});
	assert_false(found(scratch("minus"), text, sizeof text, &e));
	assert_non_null(strstr(text, "\"first_bad_token\":5,\"first_bad_byte\":20,\"first_bad_id\":-6}"));
}

/* The second of three reads of 1 MiB has it. */
static void looks_at_every_id(void **state)
{
	char text[2000];
	struct error e;
	struct bytes b = {(unsigned char[2500000]){0}, 2500000, 0};
	unsigned char *ids = b.data;
	ids[1500000] = 0xff;
	ids[1500001] = 0x7f;
	struct bytes copy = {0};
	bytes_add(&copy, b.data, b.count);
	bytes_write(&copy, scratch("large.bin"));
	struct bytes index = index_bytes(3, 2, (int32_t[]){1250000}, 1, (int64_t[]){0, 1}, 2);
	bytes_write(&index, scratch("large.idx"));
	assert_true(found(scratch("large"), text, sizeof text, &e));
	assert_non_null(strstr(text, "\"least_id\":0,\"most_id\":32767}"));
	ids[1500001] = 0xff;
	bytes_add(&copy, b.data, b.count);
	bytes_write(&copy, scratch("large.bin"));
	assert_false(found(scratch("large"), text, sizeof text, &e));
	assert_non_null(strstr(text, "\"first_bad_token\":750000,\"first_bad_byte\":1500000,\"first_bad_id\":-1}"));
}

static void finds_a_bad_entry(void **state)
{
	char text[2000];
	struct error e;
	pair(scratch("entry"), (int64_t[]){5, 9, 12, 4, 7, 6});
	struct bytes b = bytes_read(scratch("entry.idx"));
	b.data[34 + 4] = 2; /* sequence 1 has 2 tokens: into sequence 2 */
	bytes_write(&b, scratch("entry.idx"));
	assert_false(found(scratch("entry"), text, sizeof text, &e));
	assert_int_equal(e.code, CODE_DATA);
	assert_non_null(strstr(e.text, "entry.idx: sequence 2 begins at byte 16"));
	assert_null(strstr(text, "least_id"));
	assert_false(found(scratch("missing"), text, sizeof text, &e));
	assert_int_equal(e.code, CODE_DATA);
}

static void shows_both_readings_of_a_headerless_file(void **state)
{
	char text[2000];
	struct error e;
	write_ids(scratch("raw"), 2, (int64_t[]){1, 2, 3, 4}, 4);
	assert_true(found(scratch("raw"), text, sizeof text, &e));
	assert_non_null(strstr(text, "\"format\":\"headerless\",\"u16\":{\"format\":\"u16\",\"type\":\"u16\",\"tokens\":4,\"least_id\":1,\"most_id\":4}"));
	assert_non_null(strstr(text, "\"type\":\"u32\",\"tokens\":2,\"least_id\":131073,\"most_id\":262147}"));
	write_ids(scratch("raw"), 2, (int64_t[]){1, 2, 3}, 3);
	assert_true(found(scratch("raw"), text, sizeof text, &e));
	assert_null(strstr(text, "u32"));
	assert_int_equal(e.code, CODE_DONE);
	write_ids(scratch("raw"), 4, (int64_t[]){1, 3000000000}, 2); /* the second is not an int32 */
	assert_true(found(scratch("raw"), text, sizeof text, &e));
	assert_non_null(strstr(text, "\"most_id\":3000000000,\"first_bad_token\":1"));
	assert_int_equal(e.code, CODE_DONE);
	write_ids(scratch("raw"), 1, (int64_t[]){1, 2, 3}, 3);
	assert_false(found(scratch("raw"), text, sizeof text, &e));
	assert_non_null(strstr(e.text, "3 bytes long"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(describes_a_pair),
		cmocka_unit_test(finds_the_first_bad_id),
		cmocka_unit_test(looks_at_every_id),
		cmocka_unit_test(finds_a_bad_entry),
		cmocka_unit_test(shows_both_readings_of_a_headerless_file),
	};
	return cmocka_run_group_tests(tests, shard_files_open, shard_files_close);
}

#include "scratch.h"

#include <unistd.h>
#include <xxhash.h>

#include "train/safetensors.h"

static void test_read(void **state)
{
	const char *path = scratch_path(*state, "a.safetensors");
	/* In the order of the file: F64 [2], F32 [2, 3], BF16 [1], F16 [], BOOL [1, 2], nothing [0, 7]. */
	const char header[] = "{\"f64\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
			      "\"empty\":{\"dtype\":\"I32\",\"shape\":[0,7],\"data_offsets\":[46,46]},"
			      "\"__metadata__\":{\"format\":\"pt\"},"
			      "\"h/b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[40,42]},"
			      "\"h/a\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[42,44]},"
			      "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,2],\"data_offsets\":[44,46]},"
			      "\"f32\":{\"shape\":[2,3],\"dtype\":\"F32\",\"data_offsets\":[16,40]}}  \n";
	unsigned char data[46];
	double two[2] = {1.5, -2.25}, back64[2];
	float six[6] = {0, 1, 2, 3, 4, 5}, back32[3];
	uint16_t halves[2] = {0x3f80, 0x3c00}, half;
	memcpy(data, two, 16);
	memcpy(data + 16, six, 24);
	memcpy(data + 40, halves, 4);
	memcpy(data + 44, "\1\0", 2);
	scratch_safetensors(path, header, data, sizeof data);

	struct error e = {0};
	struct safetensors s;
	assert_true(safetensors_open(&s, path, &e));
	assert_int_equal(s.count, 6);
	assert_null(safetensors_find(&s, "__metadata__"));
	assert_null(safetensors_find(&s, "f3"));
	const struct safetensors_tensor *t = safetensors_find(&s, "f32");
	assert_non_null(t);
	assert_int_equal(t->dtype, F32);
	assert_int_equal(t->dims, 2);
	assert_int_equal(t->shape[1], 3);
	assert_true(safetensors_read(&s, t, 2, 3, back32, &e));
	assert_memory_equal(back32, six + 2, sizeof back32);
	assert_true(safetensors_read(&s, safetensors_find(&s, "f64"), 0, 2, back64, &e));
	assert_memory_equal(back64, two, sizeof two);
	t = safetensors_find(&s, "h/a");
	assert_int_equal(t->dims, 0);
	assert_int_equal(t->dtype, F16);
	assert_int_equal(safetensors_count(t), 1);
	assert_true(safetensors_read(&s, t, 0, 1, &half, &e));
	assert_int_equal(half, 0x3c00);
	assert_int_equal(safetensors_find(&s, "h/b")->dtype, BF16);
	t = safetensors_find(&s, "mask");
	assert_int_equal(t->dtype, DTYPE_COUNT);
	assert_string_equal(t->type, "BOOL");
	assert_int_equal(safetensors_count(safetensors_find(&s, "empty")), 0);

	/* A file that shrinks after it was opened is an error, not a crash. */
	assert_int_equal(truncate(path, (off_t)strlen(header) + 8 + 20), 0);
	assert_false(safetensors_read(&s, safetensors_find(&s, "f32"), 0, 3, back32, &e));
	assert_int_equal(e.code, CODE_CHECKPOINT);
	assert_non_null(strstr(e.text, "\"f32\": the file ends too early"));
	safetensors_close(&s);
	safetensors_close(&s);
}

static void test_write(void **state)
{
	const char *path = scratch_path(*state, "b.safetensors");
	struct safetensors_tensor list[3] = {
		{.name = "i/\"q\"", .dtype = I64, .dims = 1, .shape = {1}},
		{.name = "w", .dtype = F32, .dims = 2, .shape = {3, 1}},
		{.name = "h", .dtype = F16, .dims = 1, .shape = {2}},
	};
	int64_t i = 0x0102030405060708;
	float w[3] = {1, 2, 3};
	uint16_t h[2] = {7, 8};
	struct error e = {0};
	struct safetensors_writer writer;
	assert_true(safetensors_create(&writer, path, list, 3, &e));
	assert_true(safetensors_append(&writer, &i, sizeof i, &e));
	assert_true(safetensors_append(&writer, w, 5, &e)); /* pieces of any size */
	assert_true(safetensors_append(&writer, (char *)w + 5, 7, &e));
	assert_true(safetensors_append(&writer, h, sizeof h, &e));
	assert_true(safetensors_finish(&writer, &e));

	size_t bytes;
	unsigned char *all = scratch_read(path, &bytes);
	uint64_t length = 0;
	for (int b = 7; b >= 0; b--)
		length = length << 8 | all[b];
	const char expected[] = "{\"i/\\\"q\\\"\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
				"\"w\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[8,20]},"
				"\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[20,24]}}";
	assert_int_equal(length % 8, 0);
	assert_true(length >= strlen(expected) && length < strlen(expected) + 8);
	assert_memory_equal(all + 8, expected, strlen(expected));
	for (size_t b = strlen(expected); b < length; b++)
		assert_int_equal(all[8 + b], ' ');
	assert_int_equal(bytes, 8 + length + 24);
	assert_memory_equal(all + 8 + length, &i, 8);
	assert_memory_equal(all + 8 + length + 8, w, 12);
	assert_memory_equal(all + 8 + length + 20, h, 4);
	assert_int_equal(writer.bytes, bytes);
	assert_true(writer.xxh3 == XXH3_64bits(all, bytes));
	free(all);

	struct safetensors s;
	assert_true(safetensors_open(&s, path, &e));
	assert_int_equal(s.count, 3);
	safetensors_close(&s);
	assert_false(safetensors_create(&writer, scratch_path(*state, "none/b"), list, 3, &e));
	assert_int_equal(e.code, CODE_MACHINE);
}

/* Headers that lie, for 24 bytes of data. */
static const struct {
	const char *header, *cause;
} lies[] = {
	{"", "not JSON"},
	{"{", "not JSON"},
	{"[]", "not a JSON object"},
	{"{} x", "text after the JSON value"},
	{"{\"a\":1}", "\"a\": not an object"},
	{"{\"a\":{\"shape\":[6],\"data_offsets\":[0,24]}}", "no dtype"},
	{"{\"a\":{\"dtype\":\"F31\",\"shape\":[6],\"data_offsets\":[0,24]}}", "unknown dtype \"F31\""},
	{"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,24]}}", "shape"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[-6],\"data_offsets\":[0,24]}}", "shape"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[6.5],\"data_offsets\":[0,24]}}", "shape"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,6],\"data_offsets\":[0,24]}}", "shape"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0]}}", "data_offsets"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24,24]}}", "data_offsets"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,0]}}", "bytes 24 to 0"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,28]}}", "bytes 0 to 28 are not within the 24"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,24]}}", "does not take the 24 bytes"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", "does not take"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", "shape"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", "4 bytes behind the last tensor"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[4,24]}}", "belong to no tensor"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
	 "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
	 "\"b\": overlaps another tensor"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
	 "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
	 "the key \"a\" is there twice"},
	{"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"I32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
	 "the key \"dtype\" is there twice"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e400],\"data_offsets\":[0,24]}}", "shape"},
	{"{}", "24 bytes behind the last tensor"},
};

static void test_lies(void **state)
{
	const char *path = scratch_path(*state, "c.safetensors");
	char data[24] = {0};
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		struct error e = {0};
		struct safetensors s;
		scratch_safetensors(path, lies[i].header, data, sizeof data);
		if (safetensors_open(&s, path, &e))
			fail_msg("taken: %s", lies[i].header);
		assert_int_equal(e.code, CODE_CHECKPOINT);
		if (!strstr(e.text, lies[i].cause) || strncmp(e.text, path, strlen(path)) != 0)
			fail_msg("%s: not \"%s\" but \"%s\"", lies[i].header, lies[i].cause, e.text);
	}
}

/* A header length that is not the header's, and every way to cut a file off. */
static void test_lengths(void **state)
{
	const char *path = scratch_path(*state, "d.safetensors");
	const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
	struct error e = {0};
	struct safetensors s;
	size_t bytes;
	scratch_safetensors(path, header, "12345678", 8);
	assert_true(safetensors_open(&s, path, &e));
	safetensors_close(&s);
	unsigned char *all = scratch_read(path, &bytes);
	for (size_t cut = 0; cut < bytes; cut++) {
		scratch_write(path, all, cut);
		assert_false(safetensors_open(&s, path, &e));
		assert_int_equal(e.code, CODE_CHECKPOINT);
	}
	const uint64_t lengths[] = {0, 1, sizeof header, bytes - 7, 1ull << 62, UINT64_MAX, UINT64_MAX - 7};
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		for (int b = 0; b < 8; b++)
			all[b] = (unsigned char)(lengths[i] >> 8 * b);
		scratch_write(path, all, bytes);
		assert_false(safetensors_open(&s, path, &e));
		assert_int_equal(e.code, CODE_CHECKPOINT);
	}
	free(all);
	assert_false(safetensors_open(&s, *state, &e));
	assert_non_null(strstr(e.text, "not a regular file"));
	assert_false(safetensors_open(&s, scratch_path(*state, "none"), &e));
	assert_non_null(strstr(e.text, "No such file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_lengths),
	};
	return cmocka_run_group_tests_name("safetensors", tests, scratch_open, scratch_close);
}

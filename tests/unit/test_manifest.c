#include "scratch.h"

#include "train/manifest.h"

/* Written by hand, not by the code under test. %s: what a case puts in place of a part. */
#define HEAD                                                                                          \
	"{\"version\":1,\"step\":1000,\"updates\":998,\"samples\":32000,\"tokens\":9007199254740991," \
	"\"loss_scale\":65536,\"good_steps\":12,\"overflows\":0,"                                     \
	"\"sources\":[{\"name\":\"web\",\"samples\":30000},{\"name\":\"books\",\"samples\":2000}],"   \
	"\"settings\":{\"model.layers\":\"2\",\"data.train\":\"a, b\"},\"tuning\":{\"gemm a\":\"7\"},"
#define FILES                                                                                      \
	"\"files\":[{\"name\":\"rank-00000.safetensors\",\"bytes\":100,\"xxh3\":\"00000000000000ff\"}," \
	"{\"name\":\"rank-00001.safetensors\",\"bytes\":200,\"xxh3\":\"ffffffffffffffff\"}],"
#define PIECE(file, begin, end) \
	"{\"file\":\"rank-0000" file ".safetensors\",\"key\":\"k\",\"begin\":[" begin "],\"end\":[" end "]}"
#define TENSOR(name, dtype, shape, pieces) \
	"{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"pieces\":[" pieces "]}"
#define WHOLE(tensors) HEAD FILES "\"tensors\":[" tensors "]}"

static const char good[] = WHOLE(TENSOR(
	"weight/b", "F32", "4,6",
	PIECE("1", "0,3", "4,6") "," PIECE("0", "0,0", "2,3") "," PIECE(
		"1", "2,0",
		"4,3")) ",{\"name\":\"v/b\",\"dtype\":\"F32\",\"shape\":[4,6],\"fill\":0}," TENSOR("weight/a", "BF16",
												   "1,2,3,4",
												   PIECE("0", "0,0,0,0",
													 "1,2,3,4")));

static void check_good(const struct manifest *m)
{
	const struct manifest_counters *c = &m->run.counters;
	assert_int_equal(c->step, 1000);
	assert_int_equal(c->updates, 998);
	assert_int_equal(c->samples, 32000);
	assert_int_equal(c->tokens, 9007199254740991);
	assert_true(c->loss_scale == 65536);
	assert_int_equal(c->good_steps, 12);
	assert_int_equal(c->overflows, 0);
	assert_int_equal(m->run.source_count, 2);
	assert_string_equal(m->run.sources[1].name, "books");
	assert_int_equal(m->run.sources[1].samples, 2000);
	assert_string_equal(manifest_setting(m, "data.train"), "a, b");
	assert_null(manifest_setting(m, "data.valid"));
	assert_int_equal(m->run.tuning_count, 1);
	assert_string_equal(m->run.tuning[0].key, "gemm a");
	assert_string_equal(m->run.tuning[0].value, "7");
	assert_int_equal(m->file_count, 2);
	assert_true(m->files[0].xxh3 == 255 && m->files[1].xxh3 == UINT64_MAX);
	assert_int_equal(m->files[1].bytes, 200);
	assert_int_equal(m->tensor_count, 3);
	const struct manifest_tensor *b = manifest_find(m, "weight/b");
	assert_non_null(b);
	assert_int_equal(b->piece_count, 3);
	assert_int_equal(b->shape[1], 6);
	assert_int_equal(manifest_find(m, "v/b")->piece_count, 0);
	assert_int_equal(manifest_find(m, "weight/a")->dtype, BF16);
	assert_null(manifest_find(m, "weight"));
	int64_t sum = 0;
	for (int i = 0; i < 3; i++)
		sum += box_count(&b->pieces[i].box);
	assert_int_equal(sum, 24);
}

static void test_round_trip(void **state)
{
	struct error e = {0};
	struct manifest m, again;
	assert_true(manifest_parse(&m, "m.json", good, strlen(good), &e));
	check_good(&m);
	char *text = manifest_print(&m);
	assert_non_null(text);
	assert_non_null(strstr(text, "\"tuning\""));
	assert_true(manifest_parse(&again, "m.json", text, strlen(text), &e));
	check_good(&again);
	char *twice = manifest_print(&again);
	assert_string_equal(text, twice);
	free(text);
	free(twice);
	manifest_finish(&m);
	manifest_finish(&m);
	manifest_finish(&again);
}

static void test_counters(void **state)
{
	struct scalars s = {
		.step = 1, .updates = 2, .samples = 3, .tokens = 4, .loss_scale = 5, .good_steps = 6, .overflows = 7};
	struct scalars back = {0};
	struct manifest_counters c = manifest_counters(&s);
	manifest_restore(&back, &c);
	assert_memory_equal(&s, &back, sizeof s);
	/* A loss scale that no short decimal gives comes back bit for bit. */
	struct manifest m, again;
	struct error e = {0};
	manifest_init(&m);
	c.loss_scale = 0x1.0000000000001p0; /* fifteen digits of it are 1 */
	c.tokens = INT64_C(1) << 53;
	assert_true(manifest_set_run(&m, &(struct manifest_run){.counters = c}));
	assert_true(manifest_seal(&m, "m", CODE_MACHINE, &e));
	char *text = manifest_print(&m);
	assert_true(manifest_parse(&again, "m", text, strlen(text), &e));
	assert_memory_equal(&again.run.counters, &c, sizeof c);
	free(text);
	manifest_finish(&m);
	manifest_finish(&again);
}

static const struct {
	const char *text, *cause;
} lies[] = {
	{"{}", "no \"version\""},
	{"[]", "not a JSON object"},
	{"{\"version\":2}", "version 2; this mtrain reads version 1"},
	{"{\"version\":1,\"step\":-1}", "\"step\" is not a whole number"},
	{HEAD "\"tensors\":[]}", "no list \"files\""},
	{HEAD FILES "\"tensor\":[]}", "no list \"tensors\""},
	{HEAD "\"files\":[{\"name\":\"../x\",\"bytes\":1,\"xxh3\":\"00000000000000ff\"}],\"tensors\":[]}",
	 "not a file name"},
	{HEAD "\"files\":[{\"name\":\".x\",\"bytes\":1,\"xxh3\":\"00000000000000ff\"}],\"tensors\":[]}",
	 "not a file name"},
	{HEAD "\"files\":[{\"name\":\"x\",\"bytes\":1,\"xxh3\":\"0ff\"}],\"tensors\":[]}", "16 hex digits"},
	{HEAD "\"files\":[{\"name\":\"x\",\"bytes\":-1,\"xxh3\":\"00000000000000ff\"}],\"tensors\":[]}",
	 "a file without"},
	{HEAD "\"files\":[{\"name\":\"x\",\"bytes\":1,\"xxh3\":\"00000000000000ff\"},"
	      "{\"name\":\"x\",\"bytes\":1,\"xxh3\":\"00000000000000ff\"}],\"tensors\":[]}",
	 "file x is listed twice"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "0", "4")) "," TENSOR("a", "F32", "4", PIECE("1", "0", "4"))),
	 "tensor \"a\" is listed twice"},
	{WHOLE(TENSOR("a", "F33", "4", PIECE("0", "0", "4"))), "no dtype"},
	{WHOLE(TENSOR("a", "BOOL", "4", PIECE("0", "0", "4"))), "no dtype"},
	{WHOLE(TENSOR("a", "F32", "", PIECE("0", "", ""))), "shape"},
	{WHOLE(TENSOR("a", "F32", "1,1,1,1,1", PIECE("0", "0,0,0,0,0", "1,1,1,1,1"))), "shape"},
	{WHOLE(TENSOR("a", "F32", "0", PIECE("0", "0", "0"))), "not a shape"},
	{WHOLE(TENSOR("a", "F32", "4294967296,4294967296", PIECE("0", "0,0", "1,1"))), "not a shape"},
	{WHOLE(TENSOR("a", "F32", "4", "")), "no pieces"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("2", "0", "4"))), "not listed"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "0,0", "4,1"))), "a piece without"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "0", "5"))), "not inside it"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "2", "2"))), "not inside it"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "3", "2"))), "not inside it"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "0", "3"))), "1 of its 4 elements are in no piece"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "0", "3") "," PIECE("1", "2", "4"))), "more elements"},
	{WHOLE(TENSOR("a", "F32", "4", PIECE("0", "0", "2") "," PIECE("1", "1", "3"))), "overlap"},
	{WHOLE(TENSOR("a", "F32", "2,2", PIECE("0", "0,0", "2,1") "," PIECE("1", "1,0", "2,2"))), "overlap"},
	{WHOLE("{\"name\":\"a\",\"dtype\":\"F32\",\"shape\":[4],\"fill\":1}"), "\"fill\""},
	{WHOLE("{\"name\":\"a\",\"dtype\":\"F32\",\"shape\":[4],\"fill\":0,\"pieces\":[]}"), "\"fill\""},
	{WHOLE("{\"name\":\"a\",\"dtype\":\"F32\",\"shape\":[4]}"), "no list \"pieces\""},
	{WHOLE("{\"name\":\"\",\"dtype\":\"F32\",\"shape\":[4],\"fill\":0}"), "a tensor name of 0 bytes"},
	{WHOLE("{\"dtype\":\"F32\",\"shape\":[4],\"fill\":0}"), "without name"},
	{WHOLE("7"), "without name"},
};

static void test_lies(void **state)
{
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		struct error e = {0};
		struct manifest m;
		if (manifest_parse(&m, "m.json", lies[i].text, strlen(lies[i].text), &e))
			fail_msg("taken: %s", lies[i].text);
		assert_int_equal(e.code, CODE_CHECKPOINT);
		if (!strstr(e.text, lies[i].cause) || strncmp(e.text, "m.json: ", 8) != 0)
			fail_msg("%s: not \"%s\" but \"%s\"", lies[i].text, lies[i].cause, e.text);
	}
}

/* A manifest that is cut off is no manifest; one byte more or less is an error or another manifest, never a crash. */
static void test_cuts(void **state)
{
	struct error e;
	struct manifest m;
	for (size_t cut = 0; cut < strlen(good); cut++)
		assert_false(manifest_parse(&m, "m.json", good, cut, &e));
	char *text = strdup(good);
	for (size_t at = 0; at < strlen(good); at++) {
		text[at] ^= 1;
		if (manifest_parse(&m, "m.json", text, strlen(text), &e))
			manifest_finish(&m);
		text[at] ^= 1;
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_cuts),
	};
	return cmocka_run_group_tests_name("manifest", tests, scratch_open, scratch_close);
}

#include "scratch.h"

#include "layout.h"
#include "train/checkpoint.h"
#include "train/import_gpt2.h"
#include "train/safetensors.h"

enum { LAYERS = 2, WIDTH = 12, HEADS = 3, SIZE = 4, INNER = 20, LENGTH = 5, WORDS = 11 };

#define CONFIG_HEAD                                                                                       \
	"\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_embd\":12,\"n_head\":3,\"n_positions\":5," \
	"\"vocab_size\":11"
static const char config[] = "{" CONFIG_HEAD ",\"n_inner\":20,\"layer_norm_epsilon\":1e-6}";

/* How a folder is written. */
struct form {
	const char *prefix;   /* "transformer." or "" */
	const char *type;     /* "F32", "F16", "BF16", "F64" */
	bool untied, masks, head_too;
	const char *leave_out; /* a name without prefix */
	const char *also;      /* a tensor that does not belong */
};

/* A value that every float type holds exactly: the tensor's number in the mantissa's high bits. */
static float value_of(int tensor, int64_t element)
{
	uint32_t h = (uint32_t)tensor * 2654435761u + (uint32_t)element * 40503u;
	return (float)((int)(h >> 7 & 0x7f) - 64) / 32.0f;
}

struct writing {
	char header[1 << 14];
	unsigned char data[1 << 17];
	size_t bytes;
	const struct form *form;
};

static void put(struct writing *w, const char *name, const char *type, size_t size, int64_t rows, int64_t columns)
{
	char shape[64];
	if (columns > 0)
		snprintf(shape, sizeof shape, "%d,%d", (int)rows, (int)columns);
	else
		snprintf(shape, sizeof shape, "%d", (int)rows);
	size_t bytes = (size_t)(rows * (columns ? columns : 1)) * size, used = strlen(w->header);
	snprintf(w->header + used, sizeof w->header - used,
		 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", used > 1 ? "," : "", name,
		 type, shape, w->bytes, w->bytes + bytes);
	w->bytes += bytes;
	assert_true(w->bytes <= sizeof w->data);
}

/* The number of a tensor is its place in this order: outside 0 to 4, layer l from 10 + 20·l. */
static void put_float(struct writing *w, int tensor, const char *name, int64_t rows, int64_t columns)
{
	char full[100];
	const struct form *f = w->form;
	if (f->leave_out && strcmp(f->leave_out, name) == 0)
		return;
	snprintf(full, sizeof full, "%s%s", strcmp(name, "lm_head.weight") == 0 ? "" : f->prefix, name);
	size_t at = w->bytes, size = strcmp(f->type, "F64") == 0 ? 8 : strcmp(f->type, "F32") == 0 ? 4 : 2;
	put(w, full, f->type, size, rows, columns);
	for (int64_t i = 0; i < rows * (columns ? columns : 1); i++) {
		float v = value_of(tensor, i);
		double wide = (double)v;
		uint16_t half = strcmp(f->type, "F16") == 0 ? fp16_from_float(v) : bf16_from_float(v);
		memcpy(w->data + at + (size_t)i * size,
		       size == 8   ? (void *)&wide
		       : size == 4 ? (void *)&v
				   : &half,
		       size);
	}
}

static void put_layer(struct writing *w, int l)
{
	static const struct {
		const char *name;
		int64_t rows, columns;
	} list[] = {
		{"ln_1.weight", WIDTH, 0},        {"ln_1.bias", WIDTH, 0},
		{"attn.c_attn.weight", WIDTH, 3 * WIDTH}, {"attn.c_attn.bias", 3 * WIDTH, 0},
		{"attn.c_proj.weight", WIDTH, WIDTH}, {"attn.c_proj.bias", WIDTH, 0},
		{"ln_2.weight", WIDTH, 0},        {"ln_2.bias", WIDTH, 0},
		{"mlp.c_fc.weight", WIDTH, INNER}, {"mlp.c_fc.bias", INNER, 0},
		{"mlp.c_proj.weight", INNER, WIDTH}, {"mlp.c_proj.bias", WIDTH, 0},
	};
	char name[100];
	for (int i = 0; i < 12; i++) {
		snprintf(name, sizeof name, "h.%d.%s", l, list[i].name);
		put_float(w, 10 + 20 * l + i, name, list[i].rows, list[i].columns);
	}
	if (w->form->masks) {
		snprintf(name, sizeof name, "%sh.%d.attn.bias", w->form->prefix, l);
		put(w, name, "BOOL", 1, LENGTH, LENGTH);
		snprintf(name, sizeof name, "%sh.%d.attn.masked_bias", w->form->prefix, l);
		put(w, name, "F32", 4, 1, 0);
	}
}

/* part 0: everything; 1, 2: the layers; 3: the rest. */
static void write_file(const char *path, const struct form *f, int part)
{
	static struct writing w;
	w = (struct writing){.header = "{", .form = f};
	if (part == 0 || part == 3) {
		put_float(&w, 0, "wte.weight", WORDS, WIDTH);
		put_float(&w, 1, "wpe.weight", LENGTH, WIDTH);
		put_float(&w, 2, "ln_f.weight", WIDTH, 0);
		put_float(&w, 3, "ln_f.bias", WIDTH, 0);
		if (f->untied || f->head_too)
			put_float(&w, 4, "lm_head.weight", WORDS, WIDTH);
		if (f->also)
			put(&w, f->also, "U8", 1, 3, 0);
	}
	for (int l = 0; l < LAYERS; l++)
		if (part == 0 || part == l + 1)
			put_layer(&w, l);
	strcat(w.header, "}");
	scratch_safetensors(path, w.header, w.data, w.bytes);
}

static void write_text(const char *path, const char *text)
{
	scratch_write(path, text, strlen(text));
}

/* A fresh folder with config.json. */
static const char *folder_of(void **state, const char *text)
{
	static int number;
	char name[32];
	struct error e;
	snprintf(name, sizeof name, "in%d", number++);
	const char *path = scratch_path(*state, name);
	assert_true(file_make_folder(path, CODE_MACHINE, &e));
	write_text(scratch_path(path, "config.json"), text);
	return path;
}

static const char *output_of(void **state)
{
	static int number;
	char name[32];
	snprintf(name, sizeof name, "out%d/checkpoints", number++);
	return scratch_path(*state, name);
}

static bool import(const char *input, const char *dir, struct model_settings *m, struct error *e)
{
	struct config_pair settings[] = {{"model.layers", "2"}};
	struct manifest_run run = {.counters = {.loss_scale = 65536}, .settings = settings, .setting_count = 1};
	*m = (struct model_settings){.init_std = 0.5, .dropout = 0.25};
	*e = (struct error){0};
	return import_gpt2_settings(input, m, e) && import_gpt2(input, m, dir, &run, e);
}

static const float *tensor_of_file(const struct safetensors *s, const char *name, int64_t count, float *room)
{
	struct error e = {0};
	const struct safetensors_tensor *t = safetensors_find(s, name);
	if (!t)
		fail_msg("no %s", name);
	assert_int_equal(t->dtype, F32);
	assert_int_equal(safetensors_count(t), count);
	assert_true(safetensors_read(s, t, 0, count, room, &e));
	return room;
}

/* Every element against where it was: matrices turned, query, key and value taken apart by head. */
static void check_layer(const struct safetensors *s, int l)
{
	static const struct {
		const char *name;
		int number;
		int64_t rows, columns; /* of ours; columns 0: as it is */
	} list[] = {
		{"norm1.weight", 0, WIDTH, 0},
		{"norm1.bias", 1, WIDTH, 0},
		{"attention.out.weight", 4, WIDTH, WIDTH},
		{"attention.out.bias", 5, WIDTH, 0},
		{"norm2.weight", 6, WIDTH, 0},
		{"norm2.bias", 7, WIDTH, 0},
		{"mlp.up.weight", 8, INNER, WIDTH},
		{"mlp.up.bias", 9, INNER, 0},
		{"mlp.down.weight", 10, WIDTH, INNER},
		{"mlp.down.bias", 11, WIDTH, 0},
	};
	float got[3 * WIDTH * WIDTH];
	char name[100];
	int base = 10 + 20 * l;
	for (int i = 0; i < 10; i++) {
		int64_t R = list[i].rows, K = list[i].columns;
		snprintf(name, sizeof name, "weight/layers.%d.%s", l, list[i].name);
		tensor_of_file(s, name, R * (K ? K : 1), got);
		for (int64_t r = 0; r < R; r++)
			for (int64_t k = 0; k < (K ? K : 1); k++)
				assert_true(got[K ? r * K + k : r] ==
					    value_of(base + list[i].number, K ? k * R + r : r));
	}
	snprintf(name, sizeof name, "weight/layers.%d.attention.qkv.weight", l);
	tensor_of_file(s, name, 3 * WIDTH * WIDTH, got);
	for (int h = 0, at = 0; h < HEADS; h++)
		for (int j = 0; j < 3; j++)
			for (int d = 0; d < SIZE; d++)
				for (int c = 0; c < WIDTH; c++)
					assert_true(got[at++] ==
						    value_of(base + 2, c * 3 * WIDTH + j * WIDTH + h * SIZE + d));
	snprintf(name, sizeof name, "weight/layers.%d.attention.qkv.bias", l);
	tensor_of_file(s, name, 3 * WIDTH, got);
	for (int h = 0, at = 0; h < HEADS; h++)
		for (int j = 0; j < 3; j++)
			for (int d = 0; d < SIZE; d++)
				assert_true(got[at++] == value_of(base + 3, j * WIDTH + h * SIZE + d));
}

static void check_output(const char *dir, bool untied)
{
	static const char *const outside[] = {"embedding.token.weight", "embedding.position.weight", "norm.weight",
					      "norm.bias", "head.weight"};
	static const int64_t counts[] = {WORDS * WIDTH, LENGTH * WIDTH, WIDTH, WIDTH, WORDS * WIDTH};
	struct manifest m;
	struct safetensors s;
	struct error e = {0};
	float got[WORDS * WIDTH];
	char name[100];
	const char *path = scratch_path(dir, "step-00000000");
	int params = 4 + untied + 12 * LAYERS;
	assert_true(checkpoint_read(path, &m, NULL, NULL, &e));
	assert_int_equal(m.run.counters.step, 0);
	assert_true(m.run.counters.loss_scale == 65536);
	assert_string_equal(manifest_setting(&m, "model.layers"), "2");
	assert_int_equal(m.file_count, 1);
	assert_int_equal(m.tensor_count, 3 * params);
	for (int i = 0; i < m.tensor_count; i++)
		assert_int_equal(m.tensors[i].piece_count, m.tensors[i].name[0] == 'w');
	void *buffer = malloc(CHECKPOINT_CHUNK);
	assert_true(checkpoint_verify(path, &m.files[0], buffer, &e));
	free(buffer);
	assert_true(safetensors_open(&s, scratch_path(path, m.files[0].name), &e));
	assert_int_equal(s.count, params);
	for (int i = 0; i < 4 + untied; i++) {
		snprintf(name, sizeof name, "weight/%s", outside[i]);
		tensor_of_file(&s, name, counts[i], got);
		for (int64_t k = 0; k < counts[i]; k++)
			assert_true(got[k] == value_of(i, k));
	}
	for (int l = 0; l < LAYERS; l++)
		check_layer(&s, l);
	safetensors_close(&s);
	manifest_finish(&m);
}

static void test_forms(void **state)
{
	static const struct form forms[] = {
		{"transformer.", "F32", .masks = true},  {"", "F32", .head_too = true},
		{"transformer.", "F16", .untied = true}, {.prefix = "", .type = "BF16"},
		{"transformer.", "F64", .masks = true},
	};
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		struct model_settings m;
		struct error e;
		const char *text =
			forms[i].untied ? "{" CONFIG_HEAD ",\"n_inner\":20,\"tie_word_embeddings\":false}" : config;
		const char *input = folder_of(state, text), *dir = output_of(state);
		write_file(scratch_path(input, "model.safetensors"), &forms[i], 0);
		if (!import(input, dir, &m, &e))
			fail_msg("form %zu: %s", i, e.text);
		check_output(dir, forms[i].untied);
		assert_true(import(input, dir, &m, &e)); /* again over what is there */
		check_output(dir, forms[i].untied);
	}
}

static const char index_text[] =
	"{\"metadata\":{\"total_size\":1},\"weight_map\":{\"transformer.wte.weight\":\"m-3.safetensors\","
	"\"transformer.h.0.ln_1.bias\":\"m-1.safetensors\",\"transformer.h.1.ln_1.bias\":\"m-2.safetensors\","
	"\"transformer.wpe.weight\":\"m-3.safetensors\"}}";

static void test_sharded(void **state)
{
	static const struct form form = {"transformer.", "F32", .masks = true};
	static const char *const names[] = {"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"};
	const char *input = folder_of(state, config), *dir = output_of(state);
	const char *index = scratch_path(input, "model.safetensors.index.json");
	struct model_settings m;
	struct error e;
	for (int i = 0; i < 3; i++)
		write_file(scratch_path(input, names[i]), &form, i + 1);
	write_text(index, index_text);
	if (!import(input, dir, &m, &e))
		fail_msg("%s", e.text);
	check_output(dir, false);

	static const struct {
		const char *text, *cause;
	} lies[] = {
		{"{}", "no object \"weight_map\""},
		{"{\"weight_map\":{\"a\":1}}", "is not a file name"},
		{"{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", "is not a file in the folder"},
		{"{\"weight_map\":{\"a\":\"m-1.safetensors\"}}", "tensor \"a\" is not in m-1.safetensors"},
		{"{\"weight_map\":{\"a\":\"m-4.safetensors\"}}", "No such file"},
		{"{\"weight_map\":{\"wte.weight\":\"m-1.safetensors\",\"wpe.weight\":\"m-3.safetensors\"}}",
		 "is not in m-1"},
		{"{\"weight_map\":{\"h.0.ln_1.bias\":\"m-1.safetensors\"}}", "no tensor \"wte.weight\""},
	};
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		write_text(index, lies[i].text);
		assert_false(import(input, output_of(state), &m, &e));
		assert_int_equal(e.code, CODE_CHECKPOINT);
		if (!strstr(e.text, lies[i].cause))
			fail_msg("not \"%s\" but \"%s\"", lies[i].cause, e.text);
	}
}

static void test_settings(void **state)
{
	struct model_settings m = {.dropout = 0.25, .init_std = 0.5};
	struct error e = {0};
	assert_true(import_gpt2_settings(folder_of(state, config), &m, &e));
	assert_int_equal(m.layers, 2);
	assert_int_equal(m.hidden, WIDTH);
	assert_int_equal(m.heads, HEADS);
	assert_int_equal(m.kv_heads, HEADS);
	assert_int_equal(m.head_size, SIZE);
	assert_int_equal(m.ffn, INNER);
	assert_int_equal(m.sequence, LENGTH);
	assert_int_equal(m.vocab, WORDS);
	assert_int_equal(m.norm, NORM_LAYER);
	assert_true(m.norm_epsilon == 1e-6);
	assert_int_equal(m.activation, ACTIVATION_GELU);
	assert_true(m.bias && m.qkv_bias && m.tied && m.dropout == 0.25 && m.init_std == 0.5);

	const char *other = folder_of(state, "{" CONFIG_HEAD ",\"n_inner\":null,\"activation_function\":\"gelu\"}");
	assert_true(import_gpt2_settings(other, &m, &e));
	assert_int_equal(m.ffn, 4 * WIDTH);
	assert_int_equal(m.activation, ACTIVATION_GELU_ERF);
	assert_true(m.norm_epsilon == 1e-5);

	static const struct {
		const char *text, *cause;
	} lies[] = {
		{"", "not JSON"},
		{"{}", "architectures does not say"},
		{"{\"architectures\":[\"LlamaForCausalLM\"]}",
		 "architecture LlamaForCausalLM; what can be imported is GPT2LMHeadModel"},
		{"{" CONFIG_HEAD ",\"n_inner\":-1}", "n_inner is not a whole number from 1"},
		{"{" CONFIG_HEAD ",\"activation_function\":\"relu\"}", "activation_function relu is not supported"},
		{"{" CONFIG_HEAD ",\"scale_attn_weights\":false}", "scale_attn_weights = false is not supported"},
		{"{" CONFIG_HEAD ",\"scale_attn_by_inverse_layer_idx\":true}",
		 "scale_attn_by_inverse_layer_idx = true is not"},
		{"{" CONFIG_HEAD ",\"add_cross_attention\":true}", "add_cross_attention = true is not supported"},
		{"{" CONFIG_HEAD ",\"tie_word_embeddings\":1}", "tie_word_embeddings is not true or false"},
		{"{" CONFIG_HEAD ",\"layer_norm_epsilon\":0}", "layer_norm_epsilon is not a number above 0"},
		{"{\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":1e9}",
		 "n_layer is not a whole number from 1 to 10000"},
		{"{\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_embd\":12,\"n_head\":5,\"n_ctx\":5,"
		 "\"vocab_size\":9}",
		 "n_head 5 does not divide n_embd 12"},
	};
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		assert_false(import_gpt2_settings(folder_of(state, lies[i].text), &m, &e));
		assert_int_equal(e.code, CODE_CHECKPOINT);
		if (!strstr(e.text, lies[i].cause))
			fail_msg("not \"%s\" but \"%s\"", lies[i].cause, e.text);
	}
	assert_false(import_gpt2_settings(scratch_path(*state, "none"), &m, &e));
	assert_non_null(strstr(e.text, "none/config.json: No such file"));
}

static void test_every_tensor_counts(void **state)
{
	static const struct {
		struct form form;
		const char *config, *cause;
	} cases[] = {
		{{"transformer.", "F32", .leave_out = "h.1.mlp.c_fc.bias"}, config, "no tensor \"h.1.mlp.c_fc.bias\""},
		{{"", "F32", .also = "score.weight"}, config, "tensor \"score.weight\" has no place in this model"},
		{{"", "F32", .also = "h.2.ln_1.weight"}, config, "\"h.2.ln_1.weight\" has no place"},
		{{"", "F32", .also = "transformer.wte.weight"}, config, "are the same tensor"},
		{{.prefix = "", .type = "F32"},
		 "{" CONFIG_HEAD ",\"n_inner\":20,\"tie_word_embeddings\":false}",
		 "no tensor \"lm_head.weight\""},
		{{.prefix = "", .type = "F32"}, "{" CONFIG_HEAD "}", "\"h.0.mlp.c_fc.weight\" is not of the shape"},
		{{"", "F32", .leave_out = "ln_f.bias", .also = "ln_f.bias"}, config, "\"ln_f.bias\" is of type U8"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct model_settings m;
		struct error e;
		const char *input = folder_of(state, cases[i].config), *dir = output_of(state);
		write_file(scratch_path(input, "model.safetensors"), &cases[i].form, 0);
		assert_false(import(input, dir, &m, &e));
		assert_int_equal(e.code, CODE_CHECKPOINT);
		if (!strstr(e.text, cases[i].cause))
			fail_msg("not \"%s\" but \"%s\"", cases[i].cause, e.text);
		assert_false(file_exists(dir));
	}
}

/* The moments of imported weights come to be zero on every rank. */
static void load_moments(struct member *m)
{
	const char *dir = ((const char **)m->job)[0];
	struct error e = {0};
	struct checkpoint_found found;
	struct state s;
	bool good = checkpoint_find(&found, dir, m->world, &e) && found.path[0];
	state_init(&s);
	for (int i = 0; good && i < found.manifest.tensor_count; i++) {
		const struct manifest_tensor *t = &found.manifest.tensors[i];
		struct state_entry entry = {.dtype = F32, .dims = t->dims, .box = box_whole(t->dims, t->shape)};
		snprintf(entry.name, sizeof entry.name, "%s", t->name);
		memcpy(entry.shape, t->shape, sizeof entry.shape);
		entry.local = tensor_of(NULL, F32, t->dims, t->shape);
		good = dev_take(m->dev, &entry.local.data, tensor_bytes(entry.local), &e);
		memset(entry.local.data, 0x7b, tensor_bytes(entry.local));
		state_add(&s, &entry);
	}
	good = good && checkpoint_load(&found, m->world, m->dev, &s, false, &e);
	for (int i = 0; good && i < s.count; i++) {
		const float *values = s.entries[i].local.data;
		for (int64_t k = 0; k < tensor_count(s.entries[i].local); k++)
			good = good && (s.entries[i].name[0] == 'w' ? values[k] <= 2 : values[k] == 0);
	}
	if (!good)
		((const char **)m->job)[1 + m->rank] = "bad";
	checkpoint_found_finish(&found);
	state_finish(&s);
}

static void test_moments(void **state)
{
	static const struct form form = {.prefix = "", .type = "F32"};
	const char *input = folder_of(state, config);
	const char *job[3] = {output_of(state)};
	struct model_settings m;
	struct error e;
	write_file(scratch_path(input, "model.safetensors"), &form, 0);
	assert_true(import(input, job[0], &m, &e));
	team_run(2, load_moments, job);
	assert_null(job[1]);
	assert_null(job[2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),    cmocka_unit_test(test_sharded),
		cmocka_unit_test(test_settings), cmocka_unit_test(test_every_tensor_counts),
		cmocka_unit_test(test_moments),
	};
	return cmocka_run_group_tests_name("import", tests, scratch_open, scratch_close);
}

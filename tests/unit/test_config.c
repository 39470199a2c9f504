#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "train/config.h"

#define RUN "[run]\nsteps = 100\n"
#define MODEL "[model]\nlayers = 6\nhidden = 96\nheads = 6\nsequence = 64\n"
#define BATCH "[batch]\nglobal = 16\nmicro = 2\n"
#define REST "[optimizer]\nlr = 6e-4\n[data]\ntrain = corpus/c\n"
#define WHOLE RUN MODEL BATCH REST
#define PIPELINE "[parallel]\nschedule = interleaved\npipeline = 2\n"

static const char *const training[] = {"run", "model", "batch", "optimizer", "data", NULL};

static bool parse(struct config *c, const char *text, struct error *e, const char *set)
{
	*e = (struct error){0};
	return config_parse(c, "conf/small.ini", text, strlen(text), &set, set != NULL, e);
}

static void good(struct config *c, const char *text, const char *set)
{
	struct error e;
	if (!parse(c, text, &e, set))
		fail_msg("refused: %s", e.text);
}

static void test_whole(void **state)
{
	struct config c;
	struct error e = {0};
	good(&c, WHOLE, NULL);
	assert_true(config_require(&c, training, &e));
	assert_true(config_check(&c, &e));
	assert_int_equal(c.run.steps, 100);
	assert_string_equal(c.data.train, "corpus/c");
	assert_true(c.optimizer.lr == 6e-4);
	assert_true(config_given(&c, "model.heads"));
	assert_false(config_given(&c, "model.kv_heads"));
	char where[64];
	assert_string_equal(config_where(&c, "model.heads", where, sizeof where), "conf/small.ini:6");
	config_finish(&c);
}

/* What the contract's table says a setting is when it is left out. */
static void test_defaults(void **state)
{
	struct config c;
	good(&c, WHOLE, NULL);
	assert_string_equal(c.run.dir, "runs/small");
	assert_int_equal(c.run.seed, 1234);
	assert_true(c.run.max_minutes == 0);
	assert_int_equal(c.model.vocab, 0);
	assert_int_equal(c.model.kv_heads, 6);
	assert_int_equal(c.model.head_size, 16);
	assert_int_equal(c.model.ffn, 384);
	assert_int_equal(c.model.norm, NORM_LAYER);
	assert_true(c.model.norm_epsilon == 1e-5);
	assert_int_equal(c.model.activation, ACTIVATION_GELU);
	assert_int_equal(c.model.position, POSITION_LEARNED);
	assert_true(c.model.rope_base == 10000 && c.model.rotary_fraction == 1);
	assert_string_equal(c.model.rope_scaling, "none");
	assert_true(c.model.bias && c.model.qkv_bias && c.model.tied && !c.model.normalized_head);
	assert_true(c.model.dropout == 0 && c.model.attention_dropout == 0 && c.model.init_std == 0.02);
	assert_int_equal(c.parallel.data, 0);
	assert_int_equal(c.parallel.tensor, 1);
	assert_int_equal(c.parallel.pipeline, 1);
	assert_int_equal(c.parallel.chunks, 1);
	assert_int_equal(c.parallel.schedule, PIPELINE_1F1B);
	assert_string_equal(c.parallel.stages, "auto");
	assert_int_equal(c.precision.compute, F16);
	assert_true(c.precision.loss_scale == 0 && c.precision.loss_scale_initial == 65536 &&
		    c.precision.loss_scale_min == 1);
	assert_int_equal(c.precision.loss_scale_window, 1000);
	assert_int_equal(c.precision.overflow_limit, 20);
	assert_true(c.optimizer.min_lr == 0.1 * 6e-4);
	assert_int_equal(c.optimizer.schedule, LR_COSINE);
	assert_int_equal(c.optimizer.warmup_steps, 0);
	assert_int_equal(c.optimizer.decay_steps, 100);
	assert_true(c.optimizer.beta1 == 0.9 && c.optimizer.beta2 == 0.95 && c.optimizer.epsilon == 1e-8);
	assert_true(c.optimizer.weight_decay == 0.1 && c.optimizer.clip == 1);
	assert_string_equal(c.data.valid, "");
	assert_string_equal(c.data.format, "auto");
	assert_false(c.data.mask_end_of_document);
	assert_int_equal(c.eval.every, 0);
	assert_int_equal(c.eval.batches, 10);
	assert_int_equal(c.checkpoint.every, 1000);
	assert_int_equal(c.checkpoint.keep_last, 3);
	assert_int_equal(c.checkpoint.keep_every, 0);
	assert_string_equal(c.checkpoint.load, "auto");
	assert_int_equal(c.checkpoint.load_only, LOAD_ALL);
	assert_int_equal(c.log.every, 1);
	assert_true(c.log.jsonl);
	assert_string_equal(c.device.backend, "auto");
	assert_int_equal(c.device.threads, 0);
	assert_true(c.launch.init_timeout == 300 && c.launch.step_timeout == 600);
	config_finish(&c);
}

/* SwiGLU's inner width is 8/3 of the model's, up to a multiple of 128, unless it is given. */
static void test_swiglu(void **state)
{
	static const struct { const char *hidden; int64_t ffn; } cases[] = {
		{"model.hidden=96", 256}, {"model.hidden=48", 128}, {"model.hidden=49", 256}, {"model.hidden=4096", 11008},
		{"model.hidden=5120", 13696},
	};
	struct config c;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct error e = {0};
		const char *sets[] = {cases[i].hidden, "model.activation=swiglu"};
		assert_true(config_parse(&c, "small.ini", WHOLE, sizeof WHOLE - 1, sets, 2, &e));
		assert_int_equal(c.model.ffn, cases[i].ffn);
		config_finish(&c);
	}
	good(&c, WHOLE "[eval]\nevery = 0\n", "model.ffn=100");
	assert_int_equal(c.model.ffn, 100);
	config_finish(&c);
}

static void test_values(void **state)
{
	struct config c;
	good(&c, "\xef\xbb\xbf[run]\r\n  steps = 1.5k ; fifteen hundred\r\n# a comment\r\n\tseed=64Ki\n; more\ndir=a;b c\n"
		 "[precision]\nloss_scale = 128\ncompute = bf16\n[model]\nnorm = rmsnorm\nvocab =\nbias = off\n"
		 "[data]\nsplit =\n[device]\nthreads = 4\n[parallel]\ndata = 3\n",
	     NULL);
	assert_int_equal(c.run.steps, 1500);
	assert_int_equal(c.run.seed, 65536);
	assert_string_equal(c.run.dir, "a;b c");
	assert_true(c.precision.loss_scale == 128);
	assert_int_equal(c.precision.compute, BF16);
	assert_int_equal(c.model.norm, NORM_RMS);
	assert_int_equal(c.model.vocab, 0);
	assert_false(config_given(&c, "model.vocab"));
	assert_false(c.model.bias || c.model.qkv_bias);
	assert_string_equal(c.data.split, "");
	assert_int_equal(c.device.threads, 4);
	assert_int_equal(c.parallel.data, 3);
	config_finish(&c);
}

static void test_set(void **state)
{
	const char *sets[] = {"run.steps=7", " model.layers = 8 ", "run.steps=9", "data.train=x=y", "data.valid="};
	struct config c;
	struct error e = {0};
	assert_true(config_parse(&c, "a.ini", WHOLE, strlen(WHOLE), sets, 5, &e));
	assert_int_equal(c.run.steps, 9); /* the later one wins */
	assert_int_equal(c.optimizer.decay_steps, 9);
	assert_int_equal(c.model.layers, 8);
	assert_string_equal(c.data.train, "x=y");
	char where[64];
	assert_string_equal(config_where(&c, "run.steps", where, sizeof where), "--set");
	config_finish(&c);
}

/* A value longer than any buffer of the parser comes through whole, wherever it has blanks or comment signs. */
static void test_long_lines(void **state)
{
	char value[3000], text[4000];
	struct config c;
	for (int shift = 0; shift < 40; shift++) {
		size_t n = 0;
		for (int i = 0; n < sizeof value - 40; i++)
			n += (size_t)snprintf(value + n, sizeof value - n, "%s0.%d:shard-%0*d%s", i ? ", " : "", i, 1 + (i + shift) % 23,
					      i, i % 3 ? "#" : ";x");
		snprintf(text, sizeof text, "[run]\n[data]\ntrain = %s ; %0300d\nvalid = v\n", value, 1);
		good(&c, text, NULL);
		assert_string_equal(c.data.train, value);
		assert_string_equal(c.data.valid, "v");
		char where[64];
		assert_string_equal(config_where(&c, "data.valid", where, sizeof where), "conf/small.ini:4");
		config_finish(&c);
	}
}

static void test_wrong(void **state)
{
	static const struct {
		const char *text, *set, *says;
	} cases[] = {
		{"[run]\nstpes = 1\n", NULL, "conf/small.ini:2: unknown key 'stpes' in [run]; did you mean 'steps'?"},
		{"[run]\nlr = 1\n", NULL, "conf/small.ini:2: unknown key 'lr' in [run]; it belongs to [optimizer]"},
		{"[run]\nzzzzzzzz = 1\n", NULL, "unknown key 'zzzzzzzz' in [run]; `mtrain help settings` lists them all"},
		{"\n[modle]\nlayers = 1\n", NULL, "conf/small.ini:3: unknown section [modle]; did you mean [model]?"},
		{"[qqqqqqqqqq]\nlayers = 1\n", NULL, "unknown section [qqqqqqqqqq]; `mtrain help settings`"},
		{"steps = 1\n", NULL, "conf/small.ini:1: 'steps' stands before any [section]"},
		{"[run]\nsteps = -5\n", NULL, "conf/small.ini:2: run.steps = -5: must be at least 1"},
		{"[run]\nsteps = 0\n", NULL, "must be at least 1"},
		{"[run]\nsteps = 1.5\n", NULL, "must be a whole number (10000, 64Ki, 1.5M) at least 1"},
		{"[run]\nsteps = many\n", NULL, "run.steps = many: must be a whole number"},
		{"[run]\nsteps =\n", NULL, "run.steps = : must be a whole number"},
		{"[run]\nsteps = 10000000000000000000\n", NULL, "must be a whole number"},
		{"[run]\nsteps = 1\n\nsteps = 1\n", NULL, "conf/small.ini:4: run.steps is set a second time; the first is on line 2"},
		{"[run]\nsteps = 1\n[model]\n[run]\nsteps = 1\n", NULL, "small.ini:5: run.steps is set a second time"},
		{"[model]\ndropout = 1\n", NULL, "model.dropout = 1: must be from 0 to below 1"},
		{"[model]\ndropout = nan\n", NULL, "model.dropout = nan: must be a number from 0 to below 1"},
		{"[model]\nnorm = layrenorm\n", NULL,
		 "model.norm = layrenorm: must be layernorm or rmsnorm; did you mean 'layernorm'?"},
		{"[model]\ntied = maybe\n", NULL, "model.tied = maybe: must be true or false"},
		{"[model]\nactivation = relu\n", NULL, "must be gelu, gelu-erf or swiglu"},
		{"[model]\nvocab = 0\n", NULL, "model.vocab = 0: must be from 1 to 2147483647"},
		{"[parallel]\ndata = 0\n", NULL, "parallel.data = 0: must be from 1 to 1048576, or auto"},
		{"[precision]\nloss_scale = dynamc\n", NULL, "must be a number above 0 to 16777216, or dynamic"},
		{"[optimizer]\nschedule = cosin\n", NULL, "must be cosine, linear, constant or wsd; did you mean 'cosine'?"},
		{"[data]\nformat = megatorn\n", NULL, "must be auto, megatron, llmc, u16 or u32; did you mean 'megatron'?"},
		{"[checkpoint]\nload_only = moments\n", NULL, "must be empty or weights"},
		{"[run]\nsteps\n", NULL, "conf/small.ini:2: neither [section] nor key = value"},
		{"[run\nsteps = 1\n", NULL, "conf/small.ini:1: neither [section] nor key = value"},
		{"[run] steps = 1\n", NULL, "conf/small.ini:1: neither [section] nor key = value"},
		{"[run]\nseed = 1\n[run] ]\n", NULL, "conf/small.ini:3: neither [section] nor key = value"},
		{"[optimizer]\nepsilon = 1e-300\n", NULL,
		 "optimizer.epsilon = 1e-300: must be above 0 in single precision as well, where it is 0"},
		{"[optimizer]\nbeta2 = 0.99999999999\n", NULL, "from 0 to below 1 in single precision as well, where it is 1"},
		{"[optimizer]\nweight_decay = 1e39\n", NULL, "at least 0 in single precision as well, where it is inf"},
		{"[model]\ndropout = 0.99999999999\n", NULL, "from 0 to below 1 in single precision as well, where it is 1"},
		{"[precision]\nloss_scale = 1e-40\n", NULL, "in single precision as well, where it is 0"},
		{"[run]\nstpes = 1\nsteps\n", NULL, "conf/small.ini:2: unknown key 'stpes'"},
		{"[run]\nsteps\nstpes = 1\n", NULL, "conf/small.ini:2: neither"},
		{"[run]\nseed = 1\nsteps\n", NULL, "conf/small.ini:3: neither"},
		{"[model]\nposition = ropes\n", NULL, "must be learned, rope or alibi; did you mean 'rope'?"},
		{"[model]\nrotary_fraction = 0\n", NULL, "model.rotary_fraction = 0: must be above 0 to 1"},
		{"[parallel]\nclip = 1\n", NULL, "unknown key 'clip' in [parallel]; it belongs to [optimizer]"},
		{"", "parallel.chunks=0", "--set: parallel.chunks = 0: must be from 1 to 65536"},
		{"", "parallel.schedule=gpipe", "parallel.schedule = gpipe: must be 1f1b, interleaved or zero-bubble"},
		{"", "run.stpes=1", "--set: unknown key 'stpes' in [run]; did you mean 'steps'?"},
		{"", "runn.steps=1", "--set: unknown section [runn]; did you mean [run]?"},
		{"", "run.steps=x", "--set: run.steps = x: must be a whole number"},
		{"", "steps=1", "--set steps=1: must be section.key=value"},
		{"", "run.steps", "--set run.steps: must be section.key=value"},
		{"", ".=", "--set: '' stands before any [section]"},
		{"", "run.dir=a\nb", "cannot hold control characters"},
		{"", "run.dir=a ; b", "nor ';' after white space"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct config c;
		struct error e;
		if (parse(&c, cases[i].text, &e, cases[i].set))
			fail_msg("taken: %s / %s", cases[i].text, cases[i].set);
		assert_int_equal(e.code, CODE_USAGE);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
		assert_null(c.path);
	}
	struct config c;
	struct error e;
	assert_false(config_parse(&c, "a.ini", "[run]\n\0x", 8, NULL, 0, &e));
	assert_string_equal(e.text, "a.ini: byte 0 at offset 6: not a text file");
	assert_false(config_load(&c, "no/such.ini", NULL, 0, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_string_equal(e.text, "no/such.ini: No such file or directory");

	char line[600]; /* too long to be cut anywhere */
	memset(line, ' ', sizeof line);
	memcpy(line, "[run]\ndir = x", 13);
	snprintf(line + 500, 20, "y\n");
	assert_true(config_parse(&c, "a.ini", line, strlen(line), NULL, 0, &e) || strstr(e.text, "a.ini:2: "));
	config_finish(&c);
	memset(line, 'k', sizeof line);
	memcpy(line, "[run]\n", 6);
	memcpy(line + 590, "= 3\n", 5);
	assert_false(config_parse(&c, "a.ini", line, strlen(line), NULL, 0, &e));
	assert_string_equal(e.text, "a.ini:2: neither [section] nor key = value");
}

static void test_require(void **state)
{
	static const char *const run_model[] = {"run", "model", NULL};
	struct config c;
	struct error e = {0};
	good(&c, RUN "[model]\nlayers = 2\nhidden = 8\nheads = 2\n", NULL);
	assert_false(config_require(&c, training, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_string_equal(e.text, "conf/small.ini: model.sequence, batch.global, batch.micro, optimizer.lr, data.train are "
			    "required: write them there, or use --set");
	assert_false(config_require(&c, run_model, &e));
	assert_string_equal(e.text, "conf/small.ini: model.sequence is required: write it there, or use --set");
	config_finish(&c);
}

static void test_check(void **state)
{
	static const struct {
		const char *text, *set, *says;
	} cases[] = {
		{WHOLE, "parallel.tensor=4",
		 "model.heads = 6 cannot be split evenly over parallel.tensor = 4 ranks: a tensor size of 1, 2, 3 or 6 can"},
		{WHOLE "[parallel]\ntensor = 3\n", "model.kv_heads=2", "model.kv_heads = 2 cannot be split"},
		{WHOLE "[parallel]\ntensor = 2\n", "model.ffn=383", "model.ffn = 383 cannot be split"},
		{WHOLE, "model.kv_heads=4", "model.heads = 6 is not divisible by model.kv_heads = 4: 4 or 8 would be"},
		{WHOLE "[model]\nposition = rope\n", "model.rotary_fraction=0.4",
		 "model.rotary_fraction = 0.4 of model.head_size = 16 are 6.4, must be an even number"},
		{WHOLE "[model]\nposition = rope\n", "model.head_size=15", "model.head_size = 15 are 15, must be an even number"},
		{WHOLE "[model]\nposition = rope\n", "model.rotary_fraction=0.0625", "are 1, must be an even number"},
		{WHOLE "[model]\nposition = rope\n", "model.rope_scaling=yarn:4",
		 "model.rope_scaling = yarn:4: must be none, linear:FACTOR or llama3:FACTOR,LOW,HIGH,LENGTH"},
		{WHOLE "[model]\nposition = rope\n", "model.rope_scaling=linear:0.5", "FACTOR at least 1"},
		{WHOLE "[model]\nposition = rope\n", "model.rope_scaling=linear:2,3", "must be none"},
		{WHOLE "[model]\nposition = rope\n", "model.rope_scaling=linear:", "must be none"},
		{WHOLE "[model]\nposition = rope\n", "model.rope_scaling=llama3:8,4,4,8192", "LOW below HIGH"},
		{WHOLE "[model]\nposition = rope\n", "model.rope_scaling=llama3:8,1,4", "as in llama3:8,1,4,8192"},
		{WHOLE, "model.hidden=100", "model.hidden = 100 is not divisible by model.heads = 6: 96 or 102 would be"},
		{WHOLE, "model.hidden=1542", "model.head_size = 257 is above the 256 that attention can do"},
		{WHOLE, "model.head_size=257", "model.head_size = 257 is above the 256 that attention can do"},
		{WHOLE, "batch.global=15", "batch.global = 15 is not divisible by batch.micro = 2: 14 or 16 would be"},
		{WHOLE, "batch.global=1", "batch.global = 1 is not divisible by batch.micro = 2: 2 would be"},
		{WHOLE, "parallel.data=3", "batch.global = 16 is not divisible by batch.micro (2) times the data ranks (3) = 6: 12 or "
					   "18 would be"},
		{WHOLE, "batch.micro=33554432", "batch.micro = 33554432 samples of 64 tokens make 2147483648 rows, more than 2147483647: a smaller "
						"batch.micro or more context ranks would do"},
		{WHOLE "[parallel]\ncontext = 2\n", "batch.micro=67108864", "samples of 32 tokens on a context rank make 2147483648 rows"},
		{WHOLE, "batch.micro=33554431", "batch.global = 16 is not divisible by batch.micro = 33554431"},
		{WHOLE, "parallel.context=3", "model.sequence = 64 is not divisible by 2*parallel.context = 6: 60 or 66 would be"},
		{WHOLE, "parallel.pipeline=7", "conf/small.ini: parallel.pipeline = 7 with model.layers = 6 leaves a stage"},
		{WHOLE, "parallel.stages=3,3", "names 2 stages, but parallel.pipeline = 1"},
		{WHOLE "[parallel]\npipeline = 2\n", "parallel.stages=6,0", "stage 1 has no layer"},
		{WHOLE "[parallel]\nschedule = interleaved\n", "parallel.chunks=2",
		 "parallel.chunks = 2 with parallel.pipeline = 1: chunks take turns over the ranks of a pipeline, and here is one: "
		 "parallel.chunks = 1 would be right"},
		{WHOLE "[parallel]\npipeline = 2\n", "parallel.chunks=2", "parallel.chunks = 2 needs parallel.schedule = interleaved"},
		{WHOLE "[parallel]\npipeline = 2\nschedule = zero-bubble\n", "parallel.chunks=2",
		 "parallel.chunks = 2 needs parallel.schedule = interleaved"},
		{WHOLE PIPELINE, "parallel.chunks=4", "parallel.chunks = 4 on parallel.pipeline = 2 ranks with model.layers = 6 "
						      "leaves a chunk without a layer: use at most 3 chunks"},
		{WHOLE PIPELINE, "parallel.chunks=65536", "use at most 3 chunks"},
		{WHOLE PIPELINE "chunks = 2\n", "parallel.stages=3,3",
		 "names 2 stages, but parallel.pipeline = 2 times parallel.chunks = 2 are 4"},
		{WHOLE, "parallel.recompute=auto", "parallel.recompute = auto fits a rank into device.memory, which is auto: give it a "
						   "number, as in 70Gi"},
		{WHOLE, "optimizer.min_lr=1", "optimizer.min_lr = 1 is above optimizer.lr = 0.0006"},
		{WHOLE, "optimizer.warmup_steps=101", "optimizer.warmup_steps = 101 is above optimizer.decay_steps = 100"},
		{WHOLE, "precision.loss_scale_initial=0.5", "is below precision.loss_scale_min = 1"},
		{WHOLE, "eval.every=5", "nothing to validate on"},
		{WHOLE "valid = v\n", "data.split=9,1", "data.valid and data.split both"},
		{WHOLE, "checkpoint.keep_every=1500", "is no multiple of checkpoint.every = 1000"},
		{WHOLE "[checkpoint]\nload = none\n", "checkpoint.load_only=weights", "name the checkpoint"},
		{WHOLE, "checkpoint.load=", "checkpoint.load is empty"},
		{WHOLE, "run.dir=", "run.dir is empty"},
		{WHOLE "[parallel]\ndata = 1\n", "run.steps=9000000000000000000", "more tokens than can be counted"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct config c;
		struct error e = {0};
		good(&c, cases[i].text, cases[i].set);
		if (config_check(&c, &e))
			fail_msg("taken: %s", cases[i].set);
		assert_int_equal(e.code, CODE_USAGE);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
		config_finish(&c);
	}
	struct config c; /* commands that use no batch or model are not asked for them */
	struct error e = {0};
	good(&c, "", NULL);
	assert_true(config_check(&c, &e));
	config_finish(&c);
}

static void count_text(void *context, const char *text)
{
	char *all = context;
	strcat(all, text);
	strcat(all, "\n");
}

static void test_unused(void **state)
{
	struct config c;
	char all[2000] = "";
	good(&c, WHOLE "[precision]\nloss_scale = 8\nloss_scale_window = 10\nloss_scale_min = 1\n[eval]\nbatches = 3\n"
		 "[parallel]\nschedule = interleaved\n[model]\nrope_base = 12345\nrotary_fraction = 0.5\nrope_scaling = linear:2\n",
	     "optimizer.schedule=constant");
	config_unused(&c, count_text, all);
	assert_string_equal(all, "model.rope_base = 12345 has no effect, since model.position is not rope\n"
			    "model.rope_scaling = linear:2 has no effect, since model.position is not rope\n"
			    "model.rotary_fraction = 0.5 has no effect, since model.position is not rope\n"
			    "parallel.schedule = interleaved has no effect, since parallel.pipeline = 1\n"
			    "precision.loss_scale_window = 10 has no effect, since precision.loss_scale is fixed\n"
			    "eval.batches = 3 has no effect, since eval.every = 0\n");
	config_finish(&c);
}

/* Whatever is written comes back the same, through a file and through pairs. */
static void test_round_trip(void **state)
{
	char path[] = "/tmp/mtrain-config-XXXXXX", *first, *second;
	struct config a, b;
	struct error e = {0};
	size_t n;
	close(mkstemp(path));
	good(&a, WHOLE "split = 99,1\n[precision]\ncompute = fp32\nloss_scale = 0.1\n[model]\ndropout = 0.30000000000000004\n",
	     "optimizer.epsilon=1e-37");
	assert_true(config_write(&a, path, &e));
	assert_true(config_load(&b, path, NULL, 0, &e));
	assert_true(config_check(&b, &e));
	assert_true(b.model.dropout == 0.30000000000000004 && b.precision.loss_scale == 0.1 && b.optimizer.epsilon == 1e-37);
	assert_string_equal(b.run.dir, "runs/small");
	assert_true(config_given(&b, "eval.batches"));
	assert_true(file_read(path, &first, &n, CODE_MACHINE, &e));
	assert_true(config_write(&b, path, &e));
	assert_true(file_read(path, &second, &n, CODE_MACHINE, &e));
	assert_string_equal(first, second);
	free(first);
	free(second);
	unlink(path);

	int count;
	struct config_pair *pairs = config_pairs(&a, &count);
	struct config c;
	assert_int_equal(count, setting_count);
	assert_string_equal(pairs[0].key, "run.dir");
	assert_string_equal(pairs[0].value, "runs/small");
	char *sets[SETTING_MAX];
	for (int i = 0; i < count; i++)
		assert_true(asprintf(&sets[i], "%s=%s", pairs[i].key, pairs[i].value) > 0);
	assert_true(config_parse(&c, "b.ini", "", 0, (const char *const *)sets, count, &e));
	for (int i = 0; i < count; i++) {
		char buf[SETTING_ROOM];
		assert_string_equal(setting_print(&setting_table[i], &c, buf), pairs[i].value);
		free(sets[i]);
	}
	config_free_pairs(pairs, count);
	config_finish(&a);
	config_finish(&b);
	config_finish(&c);
}

static void test_take_model(void **state)
{
	static const struct config_pair saved[] = {
		{"run.steps", "50"},    {"model.layers", "4"}, {"model.hidden", "64"},  {"model.heads", "4"},
		{"model.ffn", "200"},   {"model.vocab", "257"}, {"model.bias", "false"}, {"model.dropout", "0.1"},
	};
	struct config c;
	struct error e = {0};
	good(&c, RUN "[model]\nlayers = 4\ndropout = 0.10\n", NULL);
	assert_true(config_take_model(&c, saved, 8, "runs/a", &e));
	assert_int_equal(c.run.steps, 100); /* only the model */
	assert_int_equal(c.model.hidden, 64);
	assert_int_equal(c.model.ffn, 200);
	assert_int_equal(c.model.head_size, 16); /* defaults move along */
	assert_int_equal(c.model.vocab, 257);
	assert_false(c.model.qkv_bias);
	assert_false(config_given(&c, "model.hidden"));
	char where[64];
	assert_string_equal(config_where(&c, "model.hidden", where, sizeof where), "the checkpoint");
	config_finish(&c);

	good(&c, RUN "[model]\nlayers = 6\n", NULL);
	assert_false(config_take_model(&c, saved, 8, "runs/a", &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_string_equal(e.text, "conf/small.ini:4: model.layers = 6, but runs/a has 4: leave it out or make them agree");
	config_finish(&c);

	good(&c, RUN, NULL);
	assert_false(config_take_model(&c, (struct config_pair[]){{"model.rope_base", "1"}}, 1, "runs/a", &e));
	assert_int_equal(e.code, CODE_CHECKPOINT);
	assert_false(config_take_model(&c, (struct config_pair[]){{"model.layers", "-1"}}, 1, "runs/a", &e));
	assert_int_equal(e.code, CODE_CHECKPOINT);
	assert_string_equal(e.text, "runs/a: model.layers = -1: must be from 1 to 65536");
	config_finish(&c);

	good(&c, RUN MODEL, NULL);
	assert_true(config_set(&c, "model.vocab", "257", CODE_DATA, &e));
	assert_int_equal(c.model.vocab, 257);
	assert_false(config_set(&c, "model.vocab", "0", CODE_DATA, &e));
	assert_int_equal(e.code, CODE_DATA);
	config_finish(&c);
}

static void note(void *context, const struct setting *s, const char *now, const char *then)
{
	char *all = context;
	sprintf(all + strlen(all), "%s.%s %s<-%s%s\n", s->section, s->key, now, then, s->orders_data ? "!" : "");
}

static void test_compare(void **state)
{
	struct config a, b;
	int count;
	char all[500] = "";
	good(&a, WHOLE, NULL);
	good(&b, WHOLE, "run.seed=1");
	struct config_pair *pairs = config_pairs(&a, &count);
	config_compare(&a, pairs, count, note, all);
	assert_string_equal(all, "");
	b.parallel.data = 2;
	b.model.layers = 7; /* another function's concern */
	config_compare(&b, pairs, count, note, all);
	assert_string_equal(all, "run.seed 1<-1234!\nparallel.data 2<-auto\n");
	config_free_pairs(pairs, count);
	config_finish(&a);
	config_finish(&b);
}

/* The table itself: no key twice, sections together, every row has its help, every default reads or is a rule. */
static void test_table(void **state)
{
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		assert_ptr_equal(setting_find(s->section, s->key), s);
		assert_true(strlen(s->help) > 8);
		assert_true((s->type == SETTING_CHOICE) <= (s->choices != NULL));
		assert_true((s->range != NULL) == (s->type == SETTING_COUNT || s->type == SETTING_NUMBER));
		for (int j = 0; j + 1 < i; j++)
			if (strcmp(setting_table[j].section, s->section) == 0)
				assert_string_equal(setting_table[i - 1].section, s->section);
	}
	struct config c;
	good(&c, WHOLE, NULL); /* config_fill checks each rule's names and order */
	for (int i = 0; i < setting_count; i++)
		assert_int_not_equal(c.origin[i].source, CONFIG_UNSET);
	config_finish(&c);
}

static void test_names(void **state)
{
	struct config c;
	struct error e;
	assert_true(config_parse(&c, "a/b.c/gpt1.3b.ini", "", 0, NULL, 0, &e));
	assert_string_equal(c.run.dir, "runs/gpt1.3b");
	config_finish(&c);
	assert_true(config_parse(&c, ".hidden", "", 0, NULL, 0, &e));
	assert_string_equal(c.run.dir, "runs/.hidden");
	config_finish(&c);
	assert_true(config_parse(&c, "odd ;\n.ini", "", 0, NULL, 0, &e));
	assert_string_equal(c.run.dir, "runs/odd___");
	config_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),      cmocka_unit_test(test_defaults),   cmocka_unit_test(test_values),
		cmocka_unit_test(test_set),        cmocka_unit_test(test_long_lines), cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_require),    cmocka_unit_test(test_check),      cmocka_unit_test(test_unused),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_take_model), cmocka_unit_test(test_compare),
		cmocka_unit_test(test_table),      cmocka_unit_test(test_names),      cmocka_unit_test(test_swiglu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

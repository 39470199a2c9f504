/* The ledger against formulas: a model's FLOPs, collectives of the axes, activations of a layer; on meshes that no machine
 * here could start. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "base/json.h"
#include "model/recompute.h"
#include "train/ledger.h"

/* GPT-3 175B and others from one text: what differs is set. */
static const char settings[] =
	"[run]\nsteps = 1\n"
	"[model]\nlayers = 96\nhidden = 12288\nheads = 96\nsequence = 2048\nvocab = 51200\n"
	"[batch]\nglobal = 1536\nmicro = 1\n"
	"[optimizer]\nlr = 1e-4\n"
	"[data]\ntrain = none\n";

struct rig {
	struct config config;
	struct mesh mesh;
};

static void open_rig(struct rig *r, int world, const char *const *sets, int count)
{
	struct error e = {0};
	if (!config_parse(&r->config, "ledger.ini", settings, sizeof settings - 1, sets, count, &e) ||
	    !config_check(&r->config, &e) ||
	    !mesh_init(&r->mesh, &r->config.parallel, 0, world, "test", "ledger.ini", &e))
		fail_msg("%s", e.text);
	r->config.parallel.data = r->mesh.size[AXIS_DATA];
}

/* The ledger of a rank, and its blocks' rows if asked for. */
static void count_one(const struct rig *r, int rank, struct ledger *l, struct block_row *rows)
{
	struct counted *c = malloc(sizeof *c);
	struct mesh mesh = r->mesh;
	struct error e = {0};
	mesh.rank = rank;
	mesh_place(&mesh, rank, mesh.at);
	assert_non_null(c);
	if (!counted_open(c, &r->config, &mesh, NULL, NULL, &e))
		fail_msg("%s", e.text);
	ledger_make(l, c, counted_step(c));
	if (rows)
		block_rows(rows, gpt_block(&c->run.gpt));
	counted_close(c);
	free(c);
}

/* That of tensor rank t of a stage. */
static void count_rank(const struct rig *r, int stage, int t, struct ledger *l, struct block_row *rows)
{
	int at[AXES] = {0};
	at[AXIS_PIPELINE] = stage;
	at[AXIS_TENSOR] = t;
	count_one(r, mesh_rank_of(&r->mesh, at), l, rows);
}

#define OPEN(r, world, ...) \
	open_rig(r, world, (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All stages together, times the ranks that share each, have the formula's FLOPs; what is computed again is beside it. */
static void flops_are_those_of_the_formula(void **state)
{
	static const char *const sets[][6] = {
		{"parallel.tensor=8", "parallel.pipeline=64", "parallel.sequence=false"},
		{"parallel.tensor=8", "parallel.pipeline=8", "parallel.recompute=full"},
		{"parallel.tensor=8", "parallel.pipeline=8", "parallel.schedule=interleaved", "parallel.chunks=3"},
		{"parallel.tensor=4", "parallel.pipeline=8", "parallel.schedule=zero-bubble", "model.kv_heads=8"},
	};
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		struct rig r = {0};
		double flops = 0, again = 0;
		int count = 0;
		while (count < 6 && sets[i][count])
			count++;
		open_rig(&r, 3072, sets[i], count);
		for (int stage = 0; stage < r.mesh.size[AXIS_PIPELINE]; stage++) {
			struct ledger l;
			count_rank(&r, stage, 0, &l, NULL);
			flops += l.flops;
			again += l.again;
		}
		double ranks = r.mesh.size[AXIS_TENSOR] * r.mesh.size[AXIS_DATA];
		double want = run_step_flops(&r.config);
		if (!((flops - again) * ranks > want * (1 - 1e-12) && (flops - again) * ranks < want * (1 + 1e-12)))
			fail_msg("%zu: %.17g FLOPs, the formula says %.17g", i, (flops - again) * ranks, want);
		/* Attention's scores, one of the 6 products of the causal half; with full recompute also a forward of the layers
		 * but for the MLP's second product. */
		const struct model_settings *m = &r.config.model;
		double N = (double)r.config.batch.global * (double)m->sequence, C = (double)m->hidden, L = (double)m->layers;
		double scores = N * (double)m->sequence * C * L, forward = N * L * (2 * (4 * C * C + 4 * C * C) + 2 * (double)m->sequence * C);
		double more = i == 1 ? scores + forward : scores;
		assert_true(again * ranks > more * (1 - 1e-12) && again * ranks < more * (1 + 1e-12));
		config_finish(&r.config);
	}
}

static int64_t calls(const struct ledger *l, const char *group, enum comm_call call)
{
	const struct ledger_group *g = ledger_find(l, group);
	return g ? g->count.calls[call] : 0;
}

static int64_t moved(const struct ledger *l, const char *group, enum comm_call call)
{
	const struct ledger_group *g = ledger_find(l, group);
	return g ? g->count.bytes[call] : 0;
}

/* Of a stage between the ends: a micro-batch's [s, h] in 16 bits is moved twice a layer each way by all-reduces; with
 * sequence parallelism gathered twice and four times, reduced twice and twice. */
static void tensor_axis(void **state)
{
	for (int sequence = 0; sequence < 2; sequence++) {
		struct rig r = {0};
		struct ledger l;
		OPEN(&r, 1024, "parallel.tensor=8", "parallel.pipeline=8", sequence ? "parallel.sequence=true" : "parallel.sequence=false");
		count_rank(&r, 3, 1, &l, NULL);
		int64_t micros = 1536 / 16, layers = 12, whole = 2048LL * 12288 * 2, each = micros * layers * whole;
		assert_int_equal(moved(&l, "tensor", COMM_ALL_GATHER), sequence ? 6 * each : 0);
		assert_int_equal(moved(&l, "tensor", COMM_REDUCE_SCATTER), sequence ? 4 * each : 0);
		/* A layer has 6 vectors of h that every tensor rank has whole. */
		assert_int_equal(moved(&l, "tensor", COMM_ALL_REDUCE), sequence ? layers * 6 * 12288 * 4 : 4 * each);
		/* Between stages an activation and a gradient each way. */
		assert_int_equal(moved(&l, "pipeline", COMM_EXCHANGE), 4 * micros * whole / (sequence ? 8 : 1));
		assert_int_equal(calls(&l, "embedding", COMM_ALL_REDUCE), 0);
		config_finish(&r.config);
	}
}

static double bytes_of(const struct ledger *l)
{
	double sum = 0;
	for (int i = 0; i < OP_COUNT; i++)
		sum += l->op[i].bytes;
	return sum;
}

/* What recompute=auto weighs (block_rows) is what the step then queues more. Of full it is less by what its ops, fused as in forward, do
 * not read again: x1 in norm(x1), and pre in gelu(pre). */
static void again_takes_what_the_rows_say(void **state)
{
	static const char *const modes[] = {"parallel.recompute=none", "parallel.recompute=selective", "parallel.recompute=full"};
	static const char *const models[][2] = {
		{"model.dropout=0.1", "model.norm=rmsnorm"}, {"model.activation=swiglu", "model.bias=false"},
		{"model.position=rope", "model.kv_heads=8"}, {"model.position=alibi", "model.dropout=0"},
	};
	for (int k = 0; k < 8; k++) {
		struct ledger l[3];
		struct block_row rows[BLOCK_TENSORS];
		double flops = 0, part = 0, all = 0, fused = 0; /* bytes of a layer and micro-batch, but for flops */
		double times = 96 / 8 * 1536 / 4.0;             /* layers of a stage · micro-batches */
		for (int mode = 0; mode < 3; mode++) {
			struct rig r = {0};
			OPEN(&r, 64, "parallel.pipeline=8", "parallel.data=4", k % 2 ? "parallel.context=2" : "parallel.tensor=2", modes[mode],
			     models[k / 2][0], models[k / 2][1]);
			count_rank(&r, 3, 0, &l[mode], rows);
			fused = 2048.0 / 2 * 12288 * 2 * (r.config.model.activation == ACTIVATION_GELU ? 5 : 1);
			config_finish(&r.config);
		}
		for (int t = 0; t < BLOCK_TENSORS; t++) {
			flops += rows[t].flops;
			all += rows[t].traffic;
			part += recompute_kept(RECOMPUTE_SELECTIVE) >> t & 1 ? 0 : rows[t].traffic;
		}
		assert_true(l[1].flops == l[0].flops);
		assert_true(bytes_of(&l[1]) - bytes_of(&l[0]) == times * part);
		assert_true(l[2].flops - l[0].flops == times * flops);
		assert_true(bytes_of(&l[2]) - bytes_of(&l[0]) == times * (all - fused));
	}
}

/* A layer's activations: 32·sbh/t in 16 bits, and 4 bytes a row for each statistic (docs/activation-memory.md). */
static void activations_of_a_layer(void **state)
{
	struct rig r = {0};
	struct ledger l;
	OPEN(&r, 1024, "parallel.tensor=8", "parallel.pipeline=8", "parallel.sequence=true");
	count_rank(&r, 3, 0, &l, NULL);
	int64_t slots = 8 - 3, layers = 12, sbh = 2048LL * 12288, rows = 2048 / 8, sum = 0;
	for (int t = 0; t < BLOCK_TENSORS; t++)
		sum += l.saved[t];
	assert_int_equal(sum, slots * layers * (32 * sbh / 8 + 4 * 4 * rows + 4 * 2048 * 96 / 8));
	assert_int_equal(sum, l.arena[MEMORY_ACTIVATIONS]);
	assert_int_equal(l.ids, 0);
	assert_int_equal(l.waiting, 0);
	config_finish(&r.config);
}

/* Every stage of a trillion parameters on 4096 ranks, in under a second and without the memory that it speaks of. The
 * best of a few tries counts, since others may be at work on the machine; instrumented code is not held to it. */
#ifdef __SANITIZE_ADDRESS__
static const double trillion_limit = INFINITY;
#else
static const double trillion_limit = 1;
#endif
static void a_trillion_in_a_second(void **state)
{
	struct rig r = {0};
	struct rusage use;
	double took = INFINITY;
	OPEN(&r, 4096, "parallel.tensor=8", "parallel.pipeline=64", "model.layers=128", "model.hidden=25600", "model.heads=160",
	     "batch.global=3072");
	for (int tries = 0; tries == 0 || (took > trillion_limit && tries < 4); tries++) {
		double begin = seconds(), weights = 0;
		for (int stage = 0; stage < 64; stage++) {
			struct ledger l;
			count_rank(&r, stage, 0, &l, NULL);
			weights += 8.0 * (double)l.arena[MEMORY_WEIGHTS] / 2;
		}
		took = fmin(took, seconds() - begin);
		assert_true(weights > 1.0e12 && weights < 1.02e12);
	}
	config_finish(&r.config);
	getrusage(RUSAGE_SELF, &use);
	printf("64 stages: %.2f s, %ld MiB\n", took, use.ru_maxrss / 1024);
	if (took > trillion_limit)
		fail_msg("took %.2f s", took);
}

static void json_has_every_number(void **state)
{
	struct rig r = {0};
	struct ledger l;
	double flops;
	OPEN(&r, 64, "parallel.tensor=8", "parallel.pipeline=8");
	count_rank(&r, 7, 0, &l, NULL);
	struct error e;
	cJSON *made = ledger_json(&l);
	char *text = cJSON_PrintUnformatted(made);
	cJSON *o = json_parse("ledger", text, strlen(text), CODE_DATA, &e);
	assert_non_null(o);
	assert_true(json_number(o, "flops", &flops) && flops == l.flops);
	cJSON *traffic = cJSON_GetObjectItem(o, "traffic");
	int64_t bytes;
	assert_true(json_count(cJSON_GetObjectItem(cJSON_GetObjectItem(traffic, "embedding"), "all_reduce"), "bytes", &bytes));
	assert_int_equal(bytes, moved(&l, "embedding", COMM_ALL_REDUCE));
	assert_true(json_count(cJSON_GetObjectItem(o, "arenas"), "activations", &bytes) && bytes == l.arena[MEMORY_ACTIVATIONS]);
	cJSON_Delete(o);
	cJSON_Delete(made);
	free(text);
	config_finish(&r.config);
}

/* The ledger as text, whatever the rank. */
static char *text_of(const struct ledger *l)
{
	struct ledger copy = *l;
	copy.rank = 0;
	cJSON *o = ledger_json(&copy);
	char *text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	assert_non_null(text);
	return text;
}

/* Every rank is in one entry, together with those that do the same and with no others. */
static void json_of_all_ranks(void **state)
{
	enum { RANKS = 16 };
	struct rig r = {0};
	struct ledger all[RANKS];
	char *text[RANKS];
	int entry[RANKS], entries = 0;
	OPEN(&r, RANKS, "parallel.tensor=2", "parallel.pipeline=2");
	for (int i = 0; i < RANKS; i++) {
		count_one(&r, i, &all[i], NULL);
		text[i] = text_of(&all[i]);
		entry[i] = -1;
	}
	cJSON *list = ledger_json_all(all, RANKS), *o, *number;
	cJSON_ArrayForEach(o, list) {
		cJSON_ArrayForEach(number, cJSON_GetObjectItem(o, "ranks")) {
			int64_t rank;
			assert_true(json_is_count(number, &rank) && rank < RANKS && entry[rank] < 0);
			entry[rank] = entries;
		}
		entries++;
	}
	for (int i = 0; i < RANKS; i++)
		for (int k = 0; k < RANKS; k++)
			assert_true((strcmp(text[i], text[k]) == 0) == (entry[i] == entry[k]));
	assert_in_range(entries, 2, RANKS - 1);
	for (int i = 0; i < RANKS; i++)
		free(text[i]);
	cJSON_Delete(list);
	config_finish(&r.config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flops_are_those_of_the_formula),
		cmocka_unit_test(tensor_axis),
		cmocka_unit_test(again_takes_what_the_rows_say),
		cmocka_unit_test(activations_of_a_layer),
		cmocka_unit_test(a_trillion_in_a_second),
		cmocka_unit_test(json_has_every_number), cmocka_unit_test(json_of_all_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

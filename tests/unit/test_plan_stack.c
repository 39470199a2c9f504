/* What a stack file's switches do to a plan: when computing stands for communication, what is kept in memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "plan/plan.h"

enum { LAYERS = 16, STAGES = 4, MICROS = 8, TOKENS = 2048, WIDTH = 2048, HEADS = 16 };

static const char settings[] =
	"[model]\nlayers = 16\nhidden = 2048\nheads = 16\nsequence = 2048\nvocab = 51200\ntied = false\n"
	"[parallel]\nsequence = false\nshard_optimizer = false\n[batch]\nglobal = 8\nmicro = 1\n";

struct rig {
	struct config config;
	struct hardware hardware;
	struct stack stack;
	struct plan plan;
};

#define SETS(...) (const char *[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

/* A plan on selene, with these lines as the stack file. */
static void plan_of(struct rig *r, const char *stack, const char *const *sets, int count)
{
	char path[] = "/tmp/mtrain-stack-XXXXXX";
	struct error e = {0};
	FILE *f = fdopen(mkstemp(path), "w");
	assert_non_null(f);
	fputs(stack, f);
	assert_int_equal(fclose(f), 0);
	*r = (struct rig){0};
	bool good = hardware_load(&r->hardware, "selene", &e) && stack_load(&r->stack, path, &e);
	unlink(path);
	if (!good || !config_parse(&r->config, "plan.ini", settings, sizeof settings - 1, sets, count, &e) ||
	    !plan_make(&r->plan, &(struct plan_options){
		    .config = &r->config, .hardware = &r->hardware, .stack = &r->stack,
	    }, &e))
		fail_msg("%s", e.text);
}

#define INTERLEAVED "parallel.schedule=interleaved", "parallel.chunks=2"

static void finish(struct rig *r)
{
	plan_finish(&r->plan);
	config_finish(&r->config);
}

static void near(double have, double want, double tolerance, const char *what)
{
	if (!(fabs(have / want - 1) <= tolerance))
		fail_msg("%s: %.6g, should be %.6g", what, have, want);
}

/* Between nodes an exchange takes x. Interleaved, with 2 chunks, hides it; a synchronous one has computing stand for it, of which
 * each rank has at least two for each chunk and micro-batch, and no longer. */
static void synchronous_exchanges_take_their_own_time(void **state)
{
	struct rig plain, waits;
	const char *slow = "[fitted]\ncommunication_time = 20\n", *both = "[fitted]\ncommunication_time = 20\n[switch]\nsynchronous_exchange = true\n";
	plan_of(&plain, slow, SETS("parallel.pipeline=4", "parallel.tensor=8", INTERLEAVED));
	plan_of(&waits, both, SETS("parallel.pipeline=4", "parallel.tensor=8", INTERLEAVED));
	double x = times_exchange(&waits.hardware, &waits.stack, false, 8, 2.0 * TOKENS * WIDTH);
	double more = waits.plan.step_seconds - plain.plan.step_seconds;
	if (!(more > x * 2 * MICROS && more < x * (2 * 2 * MICROS + 4 * STAGES)))
		fail_msg("an exchange takes %g s, and they make a step %g s longer", x, more);
	assert_true(waits.plan.seconds[CAUSE_PIPELINE] > x * 2 * 2 * MICROS * 0.8);
	finish(&plain);
	finish(&waits);
}

/* Four sums of a micro-batch's rows a layer, each in one call, and nothing computed beside them. */
static void without_overlap_rows_move_whole(void **state)
{
	struct rig r, chunks;
	plan_of(&r, "[switch]\nno_overlap = true\n", SETS("parallel.tensor=8"));
	plan_of(&chunks, "", SETS("parallel.tensor=8", "parallel.overlap=false"));
	const struct comm_count *whole = &ledger_find(&r.plan.stage[0].ledger, "tensor")->count;
	const struct comm_count *cut = &ledger_find(&chunks.plan.stage[0].ledger, "tensor")->count;
	int64_t calls = MICROS * (4 * LAYERS + 2); /* and of the embedding's rows and the head's */
	assert_int_equal(whole->calls[COMM_ALL_REDUCE], calls);
	assert_int_equal(cut->calls[COMM_ALL_REDUCE], 4 * calls);
	assert_int_equal(whole->bytes[COMM_ALL_REDUCE], cut->bytes[COMM_ALL_REDUCE]);
	double sum = hardware_collective(&r.hardware, HARDWARE_ALL_REDUCE, (struct hardware_group){8, 8, 1}, 2.0 * TOKENS * WIDTH);
	near(r.plan.seconds[CAUSE_TENSOR], sum * (double)calls, 0.01, "tensor seconds");
	assert_true(r.plan.step_seconds < chunks.plan.step_seconds);
	finish(&r);
	finish(&chunks);
}

/* Gradients are summed behind the last backward: a stage does not hold up the one before it. */
static void without_overlap_gradients_wait_for_the_last_backward(void **state)
{
	struct rig one, two;
	plan_of(&one, "[switch]\nno_overlap = true\n", SETS("parallel.pipeline=4", "batch.global=8"));
	plan_of(&two, "[switch]\nno_overlap = true\n", SETS("parallel.pipeline=4", "parallel.data=2", "batch.global=16"));
	double bytes = (double)ledger_find(&two.plan.stage[0].ledger, "data")->count.bytes[COMM_ALL_REDUCE];
	double least = hardware_collective(&two.hardware, HARDWARE_ALL_REDUCE, (struct hardware_group){2, 2, 1}, bytes);
	double more = two.plan.step_seconds - one.plan.step_seconds;
	assert_true(bytes > 0 && more > 0.9 * least && more < 2 * least);
	finish(&one);
	finish(&two);
}

static int64_t kind(const struct rig *r, enum memory_kind k)
{
	return r->plan.stage[0].ledger.arena[k];
}

static void memory_is_the_stack_s(void **state)
{
	struct rig plain, other;
	int64_t scores = (int64_t)HEADS * TOKENS * TOKENS; /* of a layer */
	plan_of(&plain, "", SETS("model.dropout=0.1"));
	plan_of(&other, "[switch]\nfp16_gradients = true\nunfused_attention = true\n[fitted]\noverhead_gib = 3\n", SETS("model.dropout=0.1"));
	assert_int_equal(kind(&other, MEMORY_GRADIENTS), kind(&plain, MEMORY_GRADIENTS) / 2);
	assert_int_equal(kind(&other, MEMORY_ACTIVATIONS) - kind(&plain, MEMORY_ACTIVATIONS), 5 * scores * LAYERS);
	assert_int_equal(other.plan.stage[0].overhead, 3LL << 30);
	int64_t sum = other.plan.stage[0].overhead + other.plan.stage[0].ledger.workspace;
	for (int k = 0; k < MEMORY_KINDS; k++)
		sum += kind(&other, (enum memory_kind)k);
	assert_int_equal(other.plan.stage[0].total, sum);
	finish(&other);
	plan_of(&other, "[switch]\nlibrary_workspace = true\n", SETS("model.dropout=0.1"));
	assert_int_equal(plain.plan.stage[0].ledger.workspace, 64 << 20); /* mtrain's own, of products */
	assert_int_equal(other.plan.stage[0].ledger.workspace, 0);
	double gib = other.hardware.library_gib.value;
	assert_true(gib > 0 && fabs((double)(other.plan.stage[0].overhead - plain.plan.stage[0].overhead) - gib * 0x1p30) <= 1);
	finish(&other);
	plan_of(&other, "[switch]\nfp16_gradients = true\n", SETS("precision.compute=bf16"));
	assert_int_equal(kind(&other, MEMORY_GRADIENTS), kind(&plain, MEMORY_GRADIENTS) / 2 * 3);
	finish(&plain);
	finish(&other);
}

/* Scores of so long sequences are more bytes than 64 bits count: they do not fit. */
static void scores_are_never_too_many_to_count(void **state)
{
	struct rig r;
	plan_of(&r, "[switch]\nunfused_attention = true\n",
		SETS("model.sequence=16777216", "model.position=rope", "model.layers=256", "model.heads=128"));
	assert_true(kind(&r, MEMORY_ACTIVATIONS) >= 1LL << 60 && kind(&r, MEMORY_SCRATCH) >= 1LL << 56);
	assert_false(r.plan.fits);
	finish(&r);
}

/* Selective recompute of attention alone: one layer's scores, its forward once more, all else kept. */
static void selective_recompute_is_of_attention(void **state)
{
	static const char stack[] = "[switch]\nunfused_attention = true\nselective_attention = true\n";
	struct rig none, some;
	int64_t scores = (int64_t)HEADS * TOKENS * TOKENS;
	plan_of(&none, stack, SETS("parallel.recompute=none"));
	plan_of(&some, stack, SETS("parallel.recompute=selective"));
	assert_int_equal(kind(&none, MEMORY_ACTIVATIONS) - kind(&some, MEMORY_ACTIVATIONS), 2 * scores * (LAYERS - 1));
	double again = times_unfused(&some.hardware, &some.stack, F16, TOKENS, HEADS, WIDTH / HEADS, false);
	near(some.plan.step_seconds - none.plan.step_seconds, again * LAYERS * MICROS, 0.01, "what is computed again");
	finish(&none);
	finish(&some);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(synchronous_exchanges_take_their_own_time),
		cmocka_unit_test(without_overlap_rows_move_whole),
		cmocka_unit_test(without_overlap_gradients_wait_for_the_last_backward),
		cmocka_unit_test(memory_is_the_stack_s),
		cmocka_unit_test(scores_are_never_too_many_to_count),
		cmocka_unit_test(selective_recompute_is_of_attention),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

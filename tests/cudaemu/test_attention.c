/* Which attention computes a shape, on the emulator, with other ones planted beside ours: one that agrees is taken and told of,
 * those that disagree, or that a rank cannot have, are refused on every rank, and whatever the other is not for stays ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/backend.h"
#include "cuda/card.h"

enum { B = 2, T = 24, KV = 3, G = 2, D = 16, ROWS = B * T, HEADS = KV * G };

/* What the planted one does wrong. */
enum fault { RIGHT, LAST_ROW, SCALE, LSE, FAILS, BITS };

static struct {
	enum fault fault;
	int open, plans, forward, backward; /* there now; opened, calls so far */
	size_t room;                        /* that a plan was offered */
	bool none;                          /* no plan for anything */
	int kind;                           /* of plan */
} planted;

static void *plan_open(void *self, const struct attention_key *key, size_t workspace, char text[TUNING_VALUE])
{
	assert_ptr_equal(self, &planted);
	assert_int_equal(key->groups, KV);
	if (planted.none) {
		snprintf(text, TUNING_VALUE, "there is none");
		return NULL;
	}
	planted.room = workspace;
	planted.open++;
	planted.plans++;
	snprintf(text, TUNING_VALUE, "planted 1 plan %d", (int)key->tokens + planted.kind);
	return &planted.plans;
}

static void plan_close(void *plan)
{
	assert_ptr_equal(plan, &planted.plans);
	planted.open--;
}

static void spoil(struct tensor t, int64_t from, int bytes, int value, const struct kernel_place *k)
{
	CALL(cudaMemsetAsync((char *)t.data + from, value, (size_t)bytes, k->stream));
}

static bool forward(void *plan, const struct kernel_place *k, const struct op_attention_forward *a)
{
	(void)plan;
	planted.forward++;
	kernel_attention_forward(k, a);
	if (planted.fault == LAST_ROW)
		spoil(a->out, (int64_t)tensor_bytes(a->out) - 2 * D, 2 * D, 0, k);
	if (planted.fault == LSE)
		spoil(a->lse, 0, 4, 0xff, k);
	return planted.fault != FAILS;
}

static bool backward(void *plan, const struct kernel_place *k, const struct op_attention_backward *a)
{
	struct op_attention_backward b = *a;
	(void)plan;
	planted.backward++;
	if (planted.fault == SCALE)
		b.scale *= 1.02;
	kernel_attention_backward(k, &b);
	if (planted.fault == BITS)
		spoil(a->dqkv, 0, 1, planted.backward, k);
	return true;
}

static size_t workspace(const struct dev_limits *limits)
{
	return (size_t)limits->scores;
}

static struct device *dev;
static struct op_attention_forward f;
static struct op_attention_backward b;

/* A card as another process would open it, with the planted one beside ours. */
static void open_pick(void)
{
	struct attention_other other = {.name = "planted 1", .workspace = workspace, .self = &planted, .plan_open = plan_open,
					.plan_close = plan_close, .forward = forward, .backward = backward};
	attention_pick_close(card_of(dev)->attention);
	assert_int_equal(planted.open, 0);
	memset(&planted, 0, sizeof planted);
	card_of(dev)->attention = attention_pick_open(&other);
	attention_pick_reserved(card_of(dev)->attention, dev->workspace);
}

static void open_card(enum dtype type)
{
	struct dev_options options = {.threads = 1};
	struct dev_limits limits = {.rows = ROWS, .width = KV * (G + 2) * D, .head_size = D, .tensors = 1, .scores = 99};
	const int64_t in[] = {ROWS, KV, G + 2, D}, to[] = {ROWS, HEADS, D}, row[] = {B, HEADS, T};
	struct error e;
	struct tensor all[6];
	assert_true(dev_open(&dev, &backend_cuda, &options, &e));
	assert_true(dev_reserve(dev, &limits, &e));
	for (int i = 0; i < 6; i++) {
		void *memory;
		all[i] = tensor_of(NULL, i < 4 ? type : F32, i < 2 ? 4 : 3, i < 2 ? in : i < 4 ? to : row);
		assert_true(dev_take(dev, &memory, tensor_bytes(all[i]) + 16, &e));
		all[i].data = memory;
	}
	f = (struct op_attention_forward){.out = all[2], .lse = all[4], .qkv = all[0], .sequence = T, .scale = 0.25};
	b = (struct op_attention_backward){.dqkv = all[1], .delta = all[5], .dout = all[3], .out = all[2], .lse = all[4], .qkv = all[0],
					   .sequence = T, .scale = 0.25};
	open_pick();
}

static void close_card(void)
{
	struct tensor all[] = {f.out, f.lse, f.qkv, b.dqkv, b.delta, b.dout};
	for (int i = 0; i < 6; i++)
		dev_give_back(dev, all[i].data);
	dev_close(dev);
	assert_int_equal(planted.open, 0);
}

static void step(void)
{
	op_attention_forward(dev, &f);
	op_attention_backward(dev, &b);
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
}

/* Whether a step is computed by the planted one, both ways or neither. */
static bool is_planted(void)
{
	int before = planted.forward, behind = planted.backward;
	step();
	assert_int_equal(planted.forward - before, planted.backward - behind);
	return planted.forward > before;
}

static const char *value(const struct tuning *t, const char *start)
{
	for (int i = 0; i < t->count; i++)
		if (strncmp(t->list[i].key, start, strlen(start)) == 0)
			return t->list[i].value;
	return "";
}

/* Another value for the choice whose key begins so. */
static void change(struct tuning *t, const char *start, const char *to)
{
	for (int i = 0; i < t->count; i++)
		if (strncmp(t->list[i].key, start, strlen(start)) == 0)
			snprintf(t->list[i].value, sizeof t->list[i].value, "%s", to);
}

static void what_agrees_is_taken(void **state)
{
	(void)state;
	for (int type = 0; type < 2; type++) {
		struct tuning chosen = {0}, again = {0};
		open_card(type ? F16 : BF16);
		assert_false(is_planted()); /* ours until it is chosen */
		dev_choose(dev, &chosen, false);
		assert_string_equal(value(&chosen, "attention "), "planted 1 plan 24");
		assert_string_equal(value(&chosen, "refused"), "");
		assert_int_equal(planted.room, dev->workspace);
		assert_true(is_planted());

		open_pick(); /* a resume: what is told needs no trying */
		dev_told(dev, &chosen);
		assert_true(is_planted());
		assert_int_equal(planted.forward, 1);
		dev_choose(dev, &again, true);
		assert_int_equal(planted.forward, 1);
		assert_string_equal(value(&again, "attention "), "planted 1 plan 24");

		change(&chosen, "attention ", "planted 2 plan 24"); /* of another version: chosen anew */
		open_pick();
		dev_told(dev, &chosen);
		assert_false(is_planted());
		dev_choose(dev, &again, false);
		assert_string_equal(value(&again, "attention "), "planted 1 plan 24");

		change(&chosen, "attention ", "own");
		dev_told(dev, &chosen); /* another rank has the word */
		assert_false(is_planted());
		assert_int_equal(planted.open, 0);
		tuning_finish(&chosen);
		tuning_finish(&again);
		close_card();
	}
}

static void what_disagrees_is_refused(void **state)
{
	(void)state;
	static const char *const causes[] = {[LAST_ROW] = "planted 1: out is off", [SCALE] = "planted 1: dqkv is off",
					     [LSE] = "planted 1: lse is off by inf", [FAILS] = "planted 1: a call fails",
					     [BITS] = "planted 1: a second run gives other bits"};
	open_card(F16);
	for (enum fault fault = LAST_ROW; fault <= BITS; fault++) {
		struct tuning chosen = {0};
		open_pick();
		planted.fault = fault;
		step();
		dev_choose(dev, &chosen, true);
		assert_string_equal(value(&chosen, "attention "), "own");
		assert_memory_equal(value(&chosen, "refused attention "), causes[fault], strlen(causes[fault]));
		assert_int_equal(planted.open, 0);
		assert_false(is_planted());

		/* On a rank where it agreed: all of them refuse it, also where the lowest rank has taken it. */
		struct tuning own = {0};
		open_pick();
		step();
		dev_choose(dev, &own, false);
		assert_true(is_planted());
		for (int i = 0; i < chosen.count; i++)
			if (!tuning_find(&own, chosen.list[i].key))
				tuning_set(&own, chosen.list[i].key, chosen.list[i].value);
		dev_told(dev, &own);
		assert_false(is_planted());

		/* A later version is tried again. */
		change(&own, "refused ", "planted 0: out is off");
		open_pick();
		dev_told(dev, &own);
		assert_true(is_planted());
		tuning_finish(&own);
		tuning_finish(&chosen);
	}
	close_card();
}

/* Ranks have agreed on the lowest one's plan, and this one has none, or another: in the end all compute alike. */
static void what_a_rank_cannot_have_is_refused(void **state)
{
	(void)state;
	static const char *const causes[] = {"planted 1 plan 24: rank 0 has no plan: there is none", "planted 1 plan 24: rank 0 has planted 1 plan 25"};
	open_card(F16);
	for (int kind = 0; kind < 2; kind++) {
		struct tuning lowest = {0}, own = {0}, again = {0};
		open_pick();
		step();
		dev_choose(dev, &lowest, false);

		open_pick(); /* the rank that cannot */
		planted.none = kind == 0;
		planted.kind = kind;
		step();
		dev_choose(dev, &own, false);
		assert_string_equal(value(&own, "refused "), "");
		dev_told(dev, &lowest);
		assert_false(is_planted());
		assert_int_equal(planted.open, 0);
		dev_choose(dev, &own, false);
		assert_string_equal(value(&own, "attention "), "own");
		assert_string_equal(value(&own, "refused attention "), causes[kind]);

		open_pick(); /* the lowest one, which could */
		step();
		dev_choose(dev, &again, false);
		assert_true(is_planted());
		for (int i = 0; i < own.count; i++)
			if (!tuning_find(&lowest, own.list[i].key))
				tuning_set(&lowest, own.list[i].key, own.list[i].value);
		dev_told(dev, &lowest);
		assert_false(is_planted());
		dev_choose(dev, &again, false);
		assert_string_equal(value(&again, "attention "), "own");
		assert_string_equal(value(&again, "refused attention "), causes[kind]);
		tuning_finish(&lowest);
		tuning_finish(&own);
		tuning_finish(&again);
	}
	close_card();
}

/* Dropout, biases, FP32, tensors beside their 16 bytes, shapes that come after step 1, what there is no plan for. */
static void the_rest_is_ours(void **state)
{
	(void)state;
	struct tuning chosen = {0};
	open_card(F16);
	planted.none = true;
	step();
	dev_choose(dev, &chosen, true);
	assert_string_equal(value(&chosen, "attention "), "own");
	assert_false(is_planted());
	tuning_finish(&chosen);

	open_pick();
	step();
	dev_choose(dev, &chosen, false);
	assert_true(is_planted());
	b.dropout = f.dropout = (struct dropout){.rate = 0.1, .site = 1, .span = {.length = T, .sequence = T}};
	assert_false(is_planted());
	b.dropout = f.dropout = (struct dropout){0};
	f.qkv.data = b.qkv.data = (char *)f.qkv.data + 2;
	assert_false(is_planted());
	f.qkv.data = b.qkv.data = (char *)f.qkv.data - 2;
	assert_true(is_planted());
	dev_rehearse(dev, true);
	dev_rehearse(dev, false); /* from here on nothing is made */
	int64_t scale = planted.plans;
	b.scale = f.scale = 0.5;
	assert_false(is_planted());
	dev_choose(dev, &chosen, false);
	assert_false(is_planted());
	assert_int_equal(planted.plans, scale);
	b.scale = f.scale = 0.25;
	assert_true(is_planted());
	tuning_finish(&chosen);
	close_card();

	open_card(F32);
	step();
	dev_choose(dev, &chosen, true);
	assert_int_equal(chosen.count, 0);
	close_card();
}

/* Without another one the choice is told of too, so that a checkpoint says what computed it. */
static void without_another(void **state)
{
	(void)state;
	struct tuning chosen = {0};
	open_card(F16);
	attention_pick_close(card_of(dev)->attention);
	card_of(dev)->attention = attention_pick_open(NULL);
	step();
	dev_choose(dev, &chosen, true);
	assert_int_equal(chosen.count, 1);
	assert_string_equal(value(&chosen, "attention fp16 2x24 heads 3x2 of 16 scale 0.25"), "own");
	tuning_finish(&chosen);
	close_card();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_agrees_is_taken), cmocka_unit_test(what_disagrees_is_refused),
		cmocka_unit_test(what_a_rank_cannot_have_is_refused), cmocka_unit_test(the_rest_is_ours), cmocka_unit_test(without_another),
	};
	return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}

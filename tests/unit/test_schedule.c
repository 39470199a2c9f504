/* Every schedule for 1–12 stages × 1–40 micro-batches × 1–4 chunks, played (pipeline.h): no deadlock though a send
 * ends only with its receive, everything once and in order, no place used early, as many in flight as the formula says.
 * Their bubbles at unit cost, and that exchanges hide behind computing. The pictures of docs/schedules.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "pipeline.h"

static const char *document; /* path of docs/schedules.md */

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* The formulas of schedule.h, once more. */
static int in_flight(const struct schedule_options *o, int stage)
{
	int behind = o->stages - stage - 1;
	if (o->kind == SCHEDULE_1F1B)
		return least(behind + 1, o->micros);
	if (o->kind == SCHEDULE_ZERO_BUBBLE)
		return least(o->stages, o->micros);
	if (o->kind == SCHEDULE_FORWARD)
		return 1;
	return (o->chunks - 1) * least(o->stages, o->micros) + least(2 * behind + 1, o->micros);
}

static void right_places(const struct pipeline *p)
{
	for (int i = 0; i < p->options.stages; i++) {
		const struct pipeline_rank *r = &p->ranks[i];
		struct schedule_options o = p->options;
		bool bound = o.kind == SCHEDULE_1F1B || o.kind == SCHEDULE_FORWARD; /* an input to its slot */
		int more = bound ? 0 : o.kind == SCHEDULE_INTERLEAVED ? 2 : 1;

		o.stage = i;
		assert_int_equal(r->in_flight, in_flight(&o, i));
		assert_int_equal(r->waiting, o.kind == SCHEDULE_ZERO_BUBBLE && i > 0 ? least(i + 1, o.micros) : 0);
		assert_int_equal(r->list.slots, r->in_flight);
		assert_int_equal(schedule_slots(&o), r->in_flight);
		assert_in_range(r->list.inputs, r->list.slots, r->list.slots + more);
		assert_in_range(r->list.outputs, 0, 2);
		assert_in_range(r->list.gradients, 0, 2);
		for (int j = 0; j < r->span_count; j++)
			if (bound && r->spans[j].action->kind == ACTION_FORWARD)
				assert_int_equal(r->spans[j].action->input, r->spans[j].action->slot);
	}
}

/* Plays all sizes of a kind; `judge` is given each, played with exchanges beside computing; waiting for each exchange at
 * once has to come to an end too. */
static void play_all(enum schedule_kind kind, void (*judge)(const struct pipeline *p))
{
	static const struct pipeline_costs unit = {.forward = 1, .input = 1, .weight = 1};
	static const struct pipeline_costs waiting = {.forward = 1, .input = 1, .weight = 1, .synchronous = true};
	struct schedule_options o = {.kind = kind};

	for (o.stages = 1; o.stages <= PIPELINE_STAGES; o.stages++)
		for (o.micros = 1; o.micros <= PIPELINE_MICROS; o.micros++)
			for (o.chunks = 1; o.chunks <= PIPELINE_CHUNKS; o.chunks++) {
				if (!schedule_possible(&o))
					continue;
				const struct pipeline *p = pipeline_play(&o, &unit);
				right_places(p);
				judge(p);
				pipeline_play(&o, &waiting);
			}
}

/* Time that a rank does not compute, in units: a chunk's forward, input part and weight part take one each. Over the
 * 3·micros·chunks units that it computes, this is the bubble. */
static int idle(const struct pipeline *p)
{
	return p->end - 3 * p->options.micros * p->options.chunks;
}

/* (stages − 1)/micros of the time that a rank computes. */
static void judge_1f1b(const struct pipeline *p)
{
	assert_int_equal(idle(p), 3 * (p->options.stages - 1));
}

/* (stages − 1)/(chunks·micros); with micro-batches left over neither above that of the next multiple nor
 * above 1F1B's. */
static void judge_interleaved(const struct pipeline *p)
{
	const struct schedule_options *o = &p->options;
	int missing = (o->stages - o->micros % o->stages) % o->stages;
	assert_true(idle(p) >= 3 * (o->stages - 1));
	assert_true(idle(p) <= 3 * (o->stages - 1) + 3 * o->chunks * missing);
	assert_true(idle(p) <= 3 * (o->stages - 1) * o->chunks);
}

/* A third of 1F1B's from as many micro-batches as stages on; never above. */
static void judge_zero_bubble(const struct pipeline *p)
{
	int stages = p->options.stages;
	if (p->options.micros >= stages)
		assert_int_equal(idle(p), stages - 1);
	else
		assert_in_range(idle(p), 0, 3 * (stages - 1));
}

/* One chunk: micro-batches run through without a gap. */
static void judge_forward(const struct pipeline *p)
{
	if (p->options.chunks == 1)
		assert_int_equal(p->end, p->options.micros + p->options.stages - 1);
}

static void test_1f1b(void **state)
{
	(void)state;
	play_all(SCHEDULE_1F1B, judge_1f1b);
}

static void test_interleaved(void **state)
{
	(void)state;
	play_all(SCHEDULE_INTERLEAVED, judge_interleaved);
}

static void test_zero_bubble(void **state)
{
	(void)state;
	play_all(SCHEDULE_ZERO_BUBBLE, judge_zero_bubble);
}

static void test_forward(void **state)
{
	(void)state;
	play_all(SCHEDULE_FORWARD, judge_forward);
}

/* What a transfer time adds to a step: the way there and back at its head and tail, nothing for each micro-batch. */
static int added(const struct schedule_options *o, int unit, int transfer)
{
	struct pipeline_costs costs = {.forward = unit, .input = unit, .weight = unit};
	int without = pipeline_play(o, &costs)->end;
	costs.transfer = transfer;
	return pipeline_play(o, &costs)->end - without;
}

static void test_hidden(void **state)
{
	(void)state;
	for (int stages = 2; stages <= 8; stages += 2)
		for (int times = 2; times <= 4; times++) {
			struct schedule_options o = {SCHEDULE_ZERO_BUBBLE, stages, 0, 1, stages * times};
			assert_in_range(added(&o, 2, 1), 0, 4 * (stages - 1));
			assert_in_range(added(&o, 10, 1), 0, 4 * (stages - 1));
			o.kind = SCHEDULE_INTERLEAVED;
			for (o.chunks = 1; o.chunks <= 3; o.chunks++) {
				assert_in_range(added(&o, 1, 1), 0, 2 * (stages * o.chunks - 1));
				assert_in_range(added(&o, 10, 1), 0, 2 * (stages * o.chunks - 1));
			}
		}
}

static void test_possible(void **state)
{
	(void)state;
	assert_true(schedule_possible(&(struct schedule_options){SCHEDULE_INTERLEAVED, 2, 1, 4, 1}));
	assert_false(schedule_possible(&(struct schedule_options){SCHEDULE_INTERLEAVED, 1, 0, 2, 8}));
	assert_false(schedule_possible(&(struct schedule_options){SCHEDULE_1F1B, 4, 0, 2, 8}));
	assert_false(schedule_possible(&(struct schedule_options){SCHEDULE_ZERO_BUBBLE, 4, 0, 2, 8}));
	assert_false(schedule_possible(&(struct schedule_options){SCHEDULE_1F1B, 4, 4, 1, 8}));
	assert_false(schedule_possible(&(struct schedule_options){SCHEDULE_1F1B, 4, 0, 1, 0}));
	assert_false(schedule_possible(&(struct schedule_options){SCHEDULE_INTERLEAVED, 4, 0, 0, 8}));
}

/* Draws a line a rank, two characters a unit of time: a letter and the micro-batch; chunk 1 in small letters. */
static void draw(char *out, const struct pipeline *p)
{
	for (int i = 0; i < p->options.stages; i++) {
		const struct pipeline_rank *r = &p->ranks[i];
		char *line = out + sprintf(out, "%d  ", i);
		memset(line, '.', (size_t)p->end * 2);
		for (int j = 0; j < r->span_count; j++) {
			const struct pipeline_span *s = &r->spans[j];
			char letter = "FBBW"[s->action->kind];
			memset(line + s->start * 2, '-', (size_t)(s->end - s->start) * 2);
			line[s->start * 2] = (char)(letter + (s->action->chunk ? 'a' - 'A' : 0));
			line[s->start * 2 + 1] = (char)('0' + s->action->micro);
		}
		out = line + p->end * 2;
		*out++ = '\n';
	}
	*out = 0;
}

static void test_pictures(void **state)
{
	static const struct schedule_options shown[] = {
		{SCHEDULE_1F1B, 4, 0, 1, 8}, {SCHEDULE_INTERLEAVED, 4, 0, 2, 8}, {SCHEDULE_ZERO_BUBBLE, 4, 0, 1, 8},
	};
	static const struct pipeline_costs unit = {.forward = 1, .input = 1, .weight = 1};
	static char text[1 << 16], picture[1 << 12];
	FILE *f = fopen(document, "r");

	(void)state;
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	for (int i = 0; i < 3; i++) {
		draw(picture, pipeline_play(&shown[i], &unit));
		if (!strstr(text, picture))
			fail_msg("%s should show\n%s", document, picture);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_1f1b), cmocka_unit_test(test_interleaved), cmocka_unit_test(test_zero_bubble),
		cmocka_unit_test(test_forward), cmocka_unit_test(test_hidden), cmocka_unit_test(test_possible),
		cmocka_unit_test(test_pictures),
	};
	if (argc != 2) {
		fprintf(stderr, "give the path of docs/schedules.md\n");
		return 2;
	}
	document = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

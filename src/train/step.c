#include "train/step.h"

#include <stdlib.h>

#include "base/log.h"

static struct mark *marks_for(const struct schedule *list)
{
	struct mark *ended = calloc((size_t)list->exchanges + 1, sizeof *ended);
	check(ended);
	return ended;
}

void step_plan(struct step *s, const struct step_options *o)
{
	*s = (struct step){
		.pipe = o->pipe, .stage = o->stage, .stages = o->stages, .chunks = o->chunks,
		.data_rank = o->data_rank, .data_size = o->data_size, .micros = o->micros,
	};
	schedule_make(&s->train, &(struct schedule_options){
		.kind = o->schedule, .stages = o->stages, .stage = o->stage, .chunks = o->chunks, .micros = o->micros,
	});
	for (int i = 0, waiting = 0; i < s->train.count; i++) {
		enum action_kind kind = s->train.actions[i].kind;
		waiting += (kind == ACTION_BACKWARD_INPUT) - (kind == ACTION_BACKWARD_WEIGHT);
		s->waits = waiting > s->waits ? waiting : s->waits;
	}
	s->ended = marks_for(&s->train);
	check(s->train.outputs <= STEP_BUFFERS && s->train.gradients <= STEP_BUFFERS);
}

void step_build(struct step *s, struct gpt *gpt, struct memory *memory)
{
	int64_t C = gpt->env.model->hidden;
	check(s->train.slots <= gpt->slot_count && s->train.inputs <= gpt->input_count);
	s->gpt = gpt;
	s->memory = memory;
	for (int i = 0; i < STEP_BUFFERS; i++) {
		if (!gpt->last || s->chunks > 1)
			s->y[i] = env_rows(&gpt->env, memory, MEMORY_COMMUNICATION, C);
		/* With one stage nothing is sent, and one gradient buffer serves. */
		s->d[i] = s->stages == 1 && i > 0 ? s->d[0] : env_rows(&gpt->env, memory, MEMORY_COMMUNICATION, C);
	}
	batch_init(&s->batch, gpt);
}

void step_finish(struct step *s)
{
	schedule_finish(&s->train);
	free(s->ended);
	batch_finish(&s->batch);
	*s = (struct step){0};
}

/* A buffer that an action names, or none. */
static struct tensor named(const struct tensor *buffers, int i)
{
	return i == ACTION_NONE ? (struct tensor){0} : buffers[i];
}

static struct tensor boundary(const struct step *s, const struct action_transfer *t)
{
	if (t->boundary == BOUNDARY_GRADIENT)
		return s->d[t->buffer];
	return t->send ? s->y[t->buffer] : gpt_input(s->gpt, t->buffer);
}

static struct mark exchange(struct step *s, const struct action *a)
{
	struct device *dev = s->gpt->env.dev;
	struct transfer list[ACTION_TRANSFERS];

	for (int i = 0; i < a->count; i++)
		list[i] = (struct transfer){
			.peer = a->transfers[i].peer, .kind = a->transfers[i].send ? TRANSFER_SEND : TRANSFER_RECEIVE,
			.tensor = boundary(s, &a->transfers[i]),
		};
	dev_wait(dev, Q_PIPE, dev_mark(dev, Q_COMPUTE));
	comm_exchange(s->pipe, Q_PIPE, list, a->count);
	struct mark ended = dev_mark(dev, Q_PIPE);
	if (!s->gpt->env.overlap)
		dev_wait(dev, Q_COMPUTE, ended);
	return ended;
}

/* What a list is carried out for. */
struct job {
	const struct feed *feed;
	int64_t sample; /* global, of the first micro-batch */
	int micros;
	bool training;
	struct tensor totals;
};

/* Whether to carry out this part of an action. A chunk's first and last micro-batch may do more than the others. */
static bool begin(struct step *s, const char *name, const struct action *a, const struct job *job)
{
	log_phase(name);
	return dev_begin(s->gpt->env.dev, &(struct stretch){
		.name = name, .chunk = a->chunk, .micro = a->micro,
		.variant = (a->micro == 0 ? 1 : 0) | (a->micro == job->micros - 1 ? 2 : 0),
	});
}

static void load(struct step *s, const struct action *a, const struct job *job)
{
	int64_t offset = ((int64_t)a->micro * s->data_size + s->data_rank) * s->gpt->env.batch;
	gpt_place(s->gpt, a->slot, a->chunk, a->input, &(struct pass){
		.sample = offset, .training = job->training, .last = job->training && a->micro == job->micros - 1,
	});
	if (!begin(s, "data", a, job))
		return;
	batch_load(&s->batch, job->feed, job->sample + offset, a->slot);
	dev_end(s->gpt->env.dev);
}

static enum backward_parts parts_of(enum action_kind kind)
{
	if (kind == ACTION_BACKWARD)
		return BACKWARD_BOTH;
	return kind == ACTION_BACKWARD_INPUT ? BACKWARD_INPUT : BACKWARD_WEIGHT;
}

static const char *name_of(enum action_kind kind)
{
	static const char *const names[] = {
		[ACTION_FORWARD] = "forward", [ACTION_BACKWARD] = "backward", [ACTION_BACKWARD_INPUT] = "backward input",
		[ACTION_BACKWARD_WEIGHT] = "backward weight", [ACTION_EXCHANGE] = "exchange",
	};
	return names[kind];
}

static void carry_out(struct step *s, const struct schedule *list, struct mark *ended, const struct job *job)
{
	struct gpt *g = s->gpt;
	int exchanges = 0;

	for (int i = 0; i < list->count; i++) {
		const struct action *a = &list->actions[i];
		if (a->kind == ACTION_EXCHANGE) {
			log_phase(name_of(a->kind));
			ended[exchanges++] = exchange(s, a);
			continue;
		}
		if (a->kind == ACTION_FORWARD)
			load(s, a, job);
		if (a->after > 0)
			dev_wait(g->env.dev, Q_COMPUTE, ended[a->after - 1]);
		if (!begin(s, name_of(a->kind), a, job))
			continue;
		if (a->kind == ACTION_FORWARD)
			gpt_forward(g, a->slot, named(s->y, a->output), job->totals, named(s->d, a->gradient));
		else
			gpt_backward(g, a->slot, parts_of(a->kind), named(s->d, a->gradient));
		dev_end(g->env.dev);
	}
	log_phase(NULL);
}

void step_train(struct step *s, const struct feed *feed, int64_t sample, struct tensor totals)
{
	struct gpt *g = s->gpt;
	struct job job = {.feed = feed, .sample = sample, .micros = s->micros, .training = true, .totals = totals};

	dev_zero(g->env.dev, Q_COMPUTE, memory_whole(s->memory, MEMORY_GRADIENTS, dtype_sum(g->env.dtype)));
	dev_zero(g->env.dev, Q_COMPUTE, totals);
	carry_out(s, &s->train, s->ended, &job);
}

void step_evaluate(struct step *s, const struct feed *feed, int64_t sample, int micros, struct tensor totals)
{
	struct schedule_options o = {
		.kind = SCHEDULE_FORWARD, .stages = s->stages, .stage = s->stage, .chunks = s->chunks, .micros = micros,
	};
	struct job job = {.feed = feed, .sample = sample, .micros = micros, .totals = totals};
	struct schedule list;

	check(micros <= s->micros);
	schedule_make(&list, &o);
	struct mark *ended = marks_for(&list);
	check(list.slots <= s->gpt->slot_count && list.inputs <= s->gpt->input_count);
	dev_zero(s->gpt->env.dev, Q_COMPUTE, totals);
	carry_out(s, &list, ended, &job);
	free(ended);
	schedule_finish(&list);
}

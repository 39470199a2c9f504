#include "train/step.h"

#include "base/log.h"

int step_slots(const struct step_options *o)
{
	int behind = o->stages - o->stage;
	return behind < o->micros ? behind : o->micros;
}

void step_build(struct step *s, const struct step_options *o, struct gpt *gpt, struct memory *memory)
{
	int64_t C = gpt->env.model->hidden;
	*s = (struct step){
		.gpt = gpt, .pipe = o->pipe, .memory = memory, .stage = o->stage, .stages = o->stages,
		.data_rank = o->data_rank, .data_size = o->data_size,
	};
	schedule_1f1b(&s->train, o->stage, o->stages, o->micros);
	check(s->train.slots == gpt->slot_count);
	for (int i = 0; i < STEP_BUFFERS; i++) {
		if (!gpt->last)
			s->y[i].rows = env_rows(&gpt->env, memory, MEMORY_COMMUNICATION, C);
		/* With one stage nothing is sent, and one gradient buffer serves. */
		s->d[i].rows = o->stages == 1 && i > 0 ? s->d[0].rows
						       : env_rows(&gpt->env, memory, MEMORY_COMMUNICATION, C);
	}
	batch_init(&s->batch, gpt);
}

void step_finish(struct step *s)
{
	schedule_finish(&s->train);
	batch_finish(&s->batch);
	*s = (struct step){0};
}

static void forward(struct step *s, const struct action *a, struct tensor totals)
{
	struct device *dev = s->gpt->env.dev;
	struct step_buffer *y = &s->y[a->micro % STEP_BUFFERS], *d = &s->d[a->micro % STEP_BUFFERS];

	log_phase("forward");
	if (!s->gpt->first)
		dev_wait(dev, Q_COMPUTE, s->received);
	dev_wait(dev, Q_COMPUTE, s->gpt->last ? d->used : y->used);
	gpt_forward(s->gpt, a->slot, y->rows, totals, d->rows);
}

static void backward(struct step *s, const struct action *a)
{
	log_phase("backward");
	if (!s->gpt->last)
		dev_wait(s->gpt->env.dev, Q_COMPUTE, s->received);
	gpt_backward(s->gpt, a->slot, s->d[a->micro % STEP_BUFFERS].rows);
}

static void exchange(struct step *s, const struct action *a)
{
	struct device *dev = s->gpt->env.dev;
	struct transfer list[4];
	int n = 0;
	int slots = s->gpt->slot_count;

	log_phase("exchange");
	if (a->send_activation >= 0)
		list[n++] = (struct transfer){s->stage + 1, TRANSFER_SEND, s->y[a->send_activation % STEP_BUFFERS].rows};
	if (a->receive_activation >= 0)
		list[n++] = (struct transfer){s->stage - 1, TRANSFER_RECEIVE, gpt_input(s->gpt, a->receive_activation % slots)};
	if (a->send_gradient >= 0)
		list[n++] = (struct transfer){s->stage - 1, TRANSFER_SEND, s->d[a->send_gradient % STEP_BUFFERS].rows};
	if (a->receive_gradient >= 0)
		list[n++] = (struct transfer){s->stage + 1, TRANSFER_RECEIVE, s->d[a->receive_gradient % STEP_BUFFERS].rows};
	dev_wait(dev, Q_PIPE, dev_mark(dev, Q_COMPUTE));
	comm_exchange(s->pipe, Q_PIPE, list, n);

	struct mark done = dev_mark(dev, Q_PIPE);
	if (a->send_activation >= 0)
		s->y[a->send_activation % STEP_BUFFERS].used = done;
	if (a->send_gradient >= 0)
		s->d[a->send_gradient % STEP_BUFFERS].used = done;
	if (a->receive_activation >= 0 || a->receive_gradient >= 0)
		s->received = done;
}

void step_train(struct step *s, const struct feed *feed, int64_t sample, struct tensor totals)
{
	struct gpt *g = s->gpt;

	dev_zero(g->env.dev, Q_COMPUTE, memory_whole(s->memory, MEMORY_GRADIENTS, dtype_sum(g->env.dtype)));
	dev_zero(g->env.dev, Q_COMPUTE, totals);
	for (int i = 0; i < s->train.count; i++) {
		const struct action *a = &s->train.actions[i];
		if (a->kind == ACTION_EXCHANGE) {
			exchange(s, a);
		} else if (a->kind == ACTION_BACKWARD) {
			backward(s, a);
		} else {
			int64_t offset = ((int64_t)a->micro * s->data_size + s->data_rank) * g->env.batch;
			log_phase("data");
			batch_load(&s->batch, feed, sample + offset, a->slot, &(struct pass){.sample = offset, .training = true});
			forward(s, a, totals);
		}
	}
	log_phase(NULL);
}

void step_evaluate(struct step *s, const struct feed *feed, int micros, struct tensor totals)
{
	struct gpt *g = s->gpt;
	struct schedule list;

	dev_zero(g->env.dev, Q_COMPUTE, totals);
	schedule_forward(&list, s->stage, s->stages, micros);
	for (int i = 0; i < list.count; i++) {
		struct action a = list.actions[i];
		if (a.kind == ACTION_EXCHANGE) {
			if (a.receive_activation >= 0)
				a.receive_activation = 0; /* every micro-batch is in slot 0 */
			exchange(s, &a);
			continue;
		}
		int64_t offset = ((int64_t)a.micro * s->data_size + s->data_rank) * g->env.batch;
		batch_load(&s->batch, feed, offset, a.slot, &(struct pass){.sample = offset, .training = false});
		forward(s, &a, totals);
	}
	schedule_finish(&list);
	log_phase(NULL);
}

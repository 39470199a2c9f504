#include "train/schedule.h"

#include <stdlib.h>

#include "base/error.h"

struct maker {
	struct schedule *s;
	bool first, last;
};

static void start(struct maker *k, struct schedule *s, int stage, int stages, int micros)
{
	check(stage >= 0 && stage < stages && micros >= 1);
	*s = (struct schedule){0};
	s->actions = calloc((size_t)micros * 5 + 1, sizeof *s->actions); /* 2m runs; exchanges: one first, one a warm-up forward, 2m */
	check(s->actions);
	*k = (struct maker){.s = s, .first = stage == 0, .last = stage == stages - 1};
}

static void run(struct maker *k, enum action_kind kind, int micro)
{
	k->s->actions[k->s->count++] = (struct action){.kind = kind, .micro = micro, .slot = micro % k->s->slots};
}

/* Adds an exchange of what has a neighbour on that side; nothing if that leaves nothing. */
static void exchange(struct maker *k, int send_activation, int receive_activation, int send_gradient,
		     int receive_gradient)
{
	struct action a = {
		.kind = ACTION_EXCHANGE,
		.micro = ACTION_NONE,
		.send_activation = k->last ? ACTION_NONE : send_activation,
		.receive_activation = k->first ? ACTION_NONE : receive_activation,
		.send_gradient = k->first ? ACTION_NONE : send_gradient,
		.receive_gradient = k->last ? ACTION_NONE : receive_gradient,
	};
	if (a.send_activation >= 0 || a.receive_activation >= 0 || a.send_gradient >= 0 || a.receive_gradient >= 0)
		k->s->actions[k->s->count++] = a;
}

void schedule_1f1b(struct schedule *s, int stage, int stages, int micros)
{
	struct maker k;
	int behind = stages - 1 - stage;
	int ahead = behind < micros ? behind : micros; /* forwards before the first backward's own forward */

	start(&k, s, stage, stages, micros);
	s->slots = stages - stage < micros ? stages - stage : micros;
	exchange(&k, ACTION_NONE, 0, ACTION_NONE, ACTION_NONE);
	for (int i = 0; i < ahead; i++) {
		run(&k, ACTION_FORWARD, i);
		exchange(&k, i, i + 1 < micros ? i + 1 : ACTION_NONE, ACTION_NONE, ACTION_NONE);
	}
	for (int j = 0; j < micros; j++) {
		int i = j + ahead;
		if (i < micros)
			run(&k, ACTION_FORWARD, i);
		exchange(&k, i < micros ? i : ACTION_NONE, ACTION_NONE, ACTION_NONE, j);
		run(&k, ACTION_BACKWARD, j);
		exchange(&k, ACTION_NONE, i + 1 < micros ? i + 1 : ACTION_NONE, j, ACTION_NONE);
	}
}

void schedule_forward(struct schedule *s, int stage, int stages, int micros)
{
	struct maker k;

	start(&k, s, stage, stages, micros);
	s->slots = 1;
	exchange(&k, ACTION_NONE, 0, ACTION_NONE, ACTION_NONE);
	for (int i = 0; i < micros; i++) {
		run(&k, ACTION_FORWARD, i);
		exchange(&k, i, i + 1 < micros ? i + 1 : ACTION_NONE, ACTION_NONE, ACTION_NONE);
	}
}

void schedule_finish(struct schedule *s)
{
	free(s->actions);
	*s = (struct schedule){0};
}

/* schedule.h: what a pipeline rank does in a step, as a list of actions: plain data, a pure function of the options.
 *
 * A rank has `chunks` chunks of the model; virtual stage v·stages + p is chunk v of rank p, so the last rank's chunk
 * v feeds rank 0's chunk v + 1. In three of the kinds a micro-batch goes forward and backward through all virtual
 * stages:
 *
 * - 1F1B (Narayanan et al. 2019): a rank runs as many forwards ahead as there are ranks behind it, then one backward
 *   after each forward. One chunk.
 * - interleaved (Narayanan et al. 2021): micro-batches go through the chunks in groups of `stages`;
 *   2·(stages − 1 − p) + (chunks − 1)·stages forwards ahead. Where micros does not divide by stages, the order is
 *   that of the next multiple with the micro-batches that do not exist left out. With one chunk this is 1F1B with
 *   about twice the forwards ahead, so that exchanges hide behind computing.
 * - zero-bubble (ZB-H1 of Qi et al. 2023): as many forwards ahead as in 1F1B; the backward is split, its input part
 *   goes on to the previous rank at once, and rank p runs weight parts p micro-batches later, where it would stand
 *   idle. Rank 0 has nobody to hurry for and does not split. One chunk.
 *
 * In every kind the micro-batches of a chunk run in order, in forwards and in weight parts alike: sums of weight
 * gradients do not depend on the schedule. schedule_order.h has the order, docs/schedules.md pictures.
 *
 * step.c carries the actions out; tests play all ranks' lists against one another. */
#ifndef MTRAIN_TRAIN_SCHEDULE_H
#define MTRAIN_TRAIN_SCHEDULE_H

#include <stdbool.h>

enum schedule_kind {
	SCHEDULE_1F1B,
	SCHEDULE_INTERLEAVED,
	SCHEDULE_ZERO_BUBBLE,
	SCHEDULE_FORWARD, /* forwards only, for evaluation; micro-batches in the order of interleaved */
};

struct schedule_options {
	enum schedule_kind kind;
	int stages, stage; /* ranks of the pipeline, and which one this is */
	int chunks;        /* of a rank */
	int micros;        /* micro-batches of a step */
};

enum action_kind {
	ACTION_FORWARD,
	ACTION_BACKWARD,        /* both parts */
	ACTION_BACKWARD_INPUT,  /* the gradient of the input; the slot keeps what the weight part needs */
	ACTION_BACKWARD_WEIGHT, /* the gradients of the weights, from the slot alone */
	ACTION_EXCHANGE,
};

enum { ACTION_NONE = -1, ACTION_TRANSFERS = 4 };

/* One boundary tensor that goes to or comes from another rank of the pipeline. */
struct action_transfer {
	enum { BOUNDARY_ACTIVATION, BOUNDARY_GRADIENT } boundary;
	bool send;
	int peer;         /* rank in the pipeline */
	int chunk, micro; /* of this rank: the chunk that made it or will use it */
	int buffer;       /* activation: sent from an output, received into an input; gradient: a gradient buffer */
};

/* A slot keeps what a micro-batch of one chunk keeps between forward and backward; every slot serves any chunk. It is
 * taken by the forward and free after the backward (split: after its weight part).
 *
 * Boundary tensors have buffers of three kinds, [N, C] each:
 * - input: the chunk's input. Received into it (first virtual stage: written by the embedding in the forward), read
 *   by the forward, kept as long as the slot. 1F1B, forward: input = slot, and nothing is received before the slot is
 *   free. The other kinds receive while all slots are taken and have an input or two more than slots.
 * - output: written by the forward, free when sent. The last virtual stage has none.
 * - gradient: the chunk's output gradient, received (last virtual stage: written by its forward, with the loss),
 *   turned into that of its input in place by the backward (split: its input part), free when sent (first virtual
 *   stage: after that backward, which includes the embedding's).
 *
 * Forwards name input and output (last virtual stage: gradient instead), backwards gradient; what an action
 * does not name is ACTION_NONE. */
struct action {
	enum action_kind kind;
	/* All but EXCHANGE. */
	int micro, chunk, slot;
	int input, output, gradient;
	int after; /* how many exchanges of this list, counted from its head, must have ended before it may begin */
	/* EXCHANGE: one grouped call that begins when all actions before it are done and the exchange before it has
	 * ended. Nothing after it waits but by `after`. Transfers between the same two ranks stand in the same order in
	 * both ranks' lists. */
	int count;
	struct action_transfer transfers[ACTION_TRANSFERS];
};

struct schedule {
	struct action *actions;
	int count;
	int exchanges; /* of the actions */
	int slots;     /* schedule_slots */
	/* Buffers of each kind. outputs, gradients ≤ 2, so that a send is under way while the next action runs;
	 * inputs = slots (1F1B, forward), ≤ slots + 1 (zero-bubble), ≤ slots + 2 (interleaved). */
	int inputs, outputs, gradients;
};

/* Whether the options make sense: 1F1B and zero-bubble have one chunk, and one rank has one chunk (nothing would be
 * gained). The caller refuses others with a message; the calls below end the program. */
bool schedule_possible(const struct schedule_options *o);

/* The most (chunk, micro-batch) pairs in flight on the rank, with p = stage, m = micros, v = chunks:
 *   1F1B         min(stages − p, m)
 *   interleaved  (v − 1)·min(stages, m) + min(2·(stages − 1 − p) + 1, m)
 *   zero-bubble  min(stages, m); at most min(p + 1, m) of them, on rank 0 none, wait for their weight part alone
 *   forward      1 */
int schedule_slots(const struct schedule_options *o);

/* The most micro-batches of a list, and of stages·chunks·micros: to make one all ranks are timed, which takes 60 bytes of each. */
enum { SCHEDULE_MICROS = 65536, SCHEDULE_MOST = 1 << 22 };

/* Makes the rank's list.
 *
 * Where exchanges stand: schedule_order.h times all ranks at unit cost, with the longest transfers that the kind can
 * hide behind computing (1F1B and forward have no room to hide any). A transfer belongs to the moment when its tensor
 * is made (1F1B: and its slot is free). Each rank has its transfers in the order of these moments, ties by boundary
 * and micro-batch, and posts a receive before the action that it runs at that moment: early enough that no sender
 * waits, late enough that no send stands behind a receive that is still to come. Since all ranks follow one order, no
 * lists can wait in a circle, whatever times actions really take and though a send ends only with its receive. */
void schedule_make(struct schedule *s, const struct schedule_options *o);
void schedule_finish(struct schedule *s);

#endif

/* Calls of the loss, of elementwise ops and of the optimizer. */
#include <math.h>
#include <stdio.h>

#include "cases.h"

INVOKE(loss_stats)
INVOKE(loss_combine)
INVOKE(loss_backward)
INVOKE(loss_total)
INVOKE(add)
INVOKE(convert)
INVOKE(square_sums)
INVOKE(step_verdict)
INVOKE(adamw)

/* Ids 7 … 12 + columns, so some on either side of the columns 10 … 9 + columns; the first at the last true column, every
 * fifth masked. */
static int64_t draw_targets(struct arg *targets, int64_t columns, int64_t valid)
{
	for (int64_t n = 0; n < targets->count; n++)
		targets->values[n] = n % 5 == 4 ? -1 : (double)(7 + call_draw("targets", n, columns + 6));
	targets->values[0] = (double)(10 + (valid > 0 ? valid - 1 : 0));
	return 10;
}

static int64_t valid_of(int64_t columns, unsigned variant)
{
	return variant == LOSS_EMPTY ? 0 : variant == LOSS_PADDED ? (2 * columns + 2) / 3 : columns;
}

bool case_loss_stats(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(loss_stats);
	op->valid = valid_of(size[1], variant);
	ADD(OUT, stats, KIND_S, size[0], 3);
	ADD(IN, logits, KIND_T, size[0], size[1]);
	op->first = draw_targets(ADD(IN, targets, KIND_I32, size[0]), size[1], op->valid);
	return true;
}

bool case_loss_combine(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(loss_combine);
	ADD(OUT, lse, KIND_S, size[1]);
	ADD(OUT, losses, KIND_S, size[1]);
	struct arg *stats = ADD(IN, stats, KIND_S, size[0], size[1], 3);
	for (int64_t i = 0; i < size[0] * size[1]; i++) {
		stats->values[3 * i + 1] = 1 + fabs(stats->values[3 * i + 1]);
		if (variant == 1 && i < size[1] && size[0] > 1) { /* the first rank has only padding */
			stats->values[3 * i] = -INFINITY;
			stats->values[3 * i + 1] = 0;
		}
		if (i / size[1] != 0)
			stats->values[3 * i + 2] = 0;
	}
	draw_targets(ADD(IN, targets, KIND_I32, size[1]), 100, 100);
	return true;
}

bool case_loss_backward(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(loss_backward);
	op->valid = valid_of(size[1], variant);
	op->sequence = 64;
	struct arg *logits = ADD(INOUT, logits, KIND_T, size[0], size[1]);
	struct arg *lse = ADD(IN, lse, KIND_S, size[0]);
	for (int64_t n = 0; n < size[0]; n++) {
		double sum = 1; /* the rest of the vocabulary is elsewhere */
		for (int64_t v = 0; v < size[1]; v++)
			sum += exp(logits->values[n * size[1] + v]);
		lse->values[n] = log(sum);
	}
	op->first = draw_targets(ADD(IN, targets, KIND_I32, size[0]), size[1], op->valid);
	return true;
}

bool case_loss_total(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(loss_total);
	ADD(INOUT, totals, KIND_F64, 3);
	struct arg *losses = ADD(IN, losses, KIND_S, size[0]);
	struct arg *targets = ADD(IN, targets, KIND_I32, size[0]);
	draw_targets(targets, 100, 100);
	for (int64_t n = 0; n < size[0]; n++)
		losses->values[n] = targets->values[n] < 0 ? 0 : fabs(losses->values[n]);
	return true;
}

bool case_add(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(add);
	ADD(INOUT, y, variant ? KIND_S : KIND_T, size[0]);
	ADD(IN, x, variant ? KIND_S : KIND_T, size[0]);
	return true;
}

/* From the call's type to each, and from each to the call's type. */
bool case_convert(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(convert);
	enum kind other = KIND_F64 + variant % 4;
	ADD(OUT, to, variant < 4 ? other : KIND_T, size[0]);
	ADD(IN, from, variant < 4 ? KIND_T : other, size[0]);
	return true;
}

bool case_square_sums(struct call *c, const int64_t *size, unsigned variant)
{
	static const char *const names[CALL_LIST] = {"grad 0", "grad 1", "grad 2"};
	static const int64_t slots[CALL_LIST] = {4, 0, 2};
	CASE(square_sums);
	ADD(INOUT, sums, KIND_F64, 5);
	for (int i = 0; i < CALL_LIST; i++) {
		int64_t count = i == 0 ? size[0] : i == 1 ? 1 : 2 * size[0] + 1;
		call_add(c, names[i], &c->grads[i], IN, KIND_S, 1, &count);
		c->slots[i] = slots[i];
	}
	op->grads = c->grads;
	op->slots = c->slots;
	op->count = CALL_LIST;
	return true;
}

static struct step_rules rules_of(void)
{
	return (struct step_rules){.schedule = LR_COSINE, .lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 2, .decay_steps = 10,
				   .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 1,
				   .dynamic_scale = true, .scale_min = 1, .scale_window = 3, .sequence = 64,
				   .global_batch = 8};
}

bool case_step_verdict(struct call *c, const int64_t *size, unsigned variant)
{
	CASE(step_verdict);
	struct arg *totals = ADD(IN, totals, KIND_F64, 2), *sums = ADD(IN, sums, KIND_F64, size[0]);
	c->moves_scalars = true;
	op->rules = rules_of();
	op->rules.dynamic_scale = variant != VERDICT_FIXED;
	totals->values[0] = variant == VERDICT_BAD_LOSS ? (double)NAN : 1234.5;
	totals->values[1] = 500;
	for (int64_t i = 0; i < sums->count; i++)
		sums->values[i] *= sums->values[i];
	if (variant == VERDICT_BAD_SUM)
		sums->values[sums->count / 2] = INFINITY;
	return true;
}

bool case_adamw(struct call *c, const int64_t *size, unsigned variant)
{
	static const char *const names[2][5] = {{"master 0", "m 0", "v 0", "grad 0", "weight 0"},
						{"master 1", "m 1", "v 1", "grad 1", "weight 1"}};
	CASE(adamw);
	c->scalars.skipped = variant & ADAMW_SKIPPED;
	for (int i = 0; i < 2; i++) {
		struct adamw_item *item = &c->items[i];
		int64_t count = i == 0 ? size[0] : size[0] + 3;
		call_add(c, names[i][0], &item->master, INOUT, KIND_S, 1, &count);
		call_add(c, names[i][1], &item->m, INOUT, KIND_S, 1, &count);
		struct arg *v = call_add(c, names[i][2], &item->v, INOUT, KIND_S, 1, &count);
		for (int64_t k = 0; k < count; k++)
			v->values[k] *= v->values[k];
		call_add(c, names[i][3], &item->grad, IN, KIND_S, 1, &count);
		if (i == 1 || !(variant & ADAMW_NO_WEIGHT))
			call_add(c, names[i][4], &item->weight, c->scalars.skipped ? INOUT : OUT, KIND_T, 1, &count);
		item->decay = i == 0;
	}
	op->items = c->items;
	op->count = 2;
	op->rules = rules_of();
	return true;
}

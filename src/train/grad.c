#include "train/grad.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

void grad_build(struct grad *g, const struct grad_options *o, struct memory *memory)
{
	const struct param_table *t = o->params;
	const struct slices *s = o->slices;
	*g = (struct grad){.dev = o->dev, .groups = o->groups, .params = t, .slices = s, .rules = o->rules,
			   .partial = o->partial, .overlap = o->overlap};
	g->first_copy = comm_rank(o->groups->data) == 0;
	g->vector = arena_1d(&memory->arena[MEMORY_COMMUNICATION], F64, TOTALS + (int64_t)t->count * t->tensor);
	g->owned = calloc((size_t)s->pieces_count + 1, sizeof *g->owned);
	g->slots = calloc((size_t)s->pieces_count + 1, sizeof *g->slots);
	g->reduced = calloc((size_t)t->bucket_count, sizeof *g->reduced);
	check(g->owned && g->slots && g->reduced);
	for (int i = 0; i < s->pieces_count; i++) {
		const struct param *p = s->pieces[i].param;
		if (!p->owner || (s->count == 1 && !g->first_copy))
			continue;
		g->owned[g->count] = slices_part(&s->pieces[i], slices_own(s, t->buckets[p->bucket].grads));
		g->slots[g->count] = (p - t->params) * t->tensor + (p->split == PARAM_WHOLE ? 0 : t->tensor_rank);
		g->count++;
	}
	if (o->ends && o->model->tied)
		g->tied = param_find(t, "embedding.token.weight");
}

void grad_finish(struct grad *g)
{
	free(g->owned);
	free(g->slots);
	free(g->reduced);
	*g = (struct grad){0};
}

static struct tensor part(const struct grad *g, int64_t begin, int64_t count)
{
	return tensor_rows(g->vector, begin, count);
}

struct tensor grad_totals(const struct grad *g)
{
	return part(g, 0, TOTALS);
}

/* Σ over the ranks of c, after what is computed; what is computed next waits for it. */
static void sum(struct grad *g, struct comm *c, enum queue q, struct tensor t)
{
	dev_wait(g->dev, q, dev_mark(g->dev, Q_COMPUTE));
	comm_all_reduce(c, q, t);
	dev_wait(g->dev, Q_COMPUTE, dev_mark(g->dev, q));
}

/* Begins Σ over the ranks of c behind what q waits for; what q2 does next waits for it. */
static void sum_before(struct grad *g, struct comm *c, enum queue q, struct tensor t, enum queue q2)
{
	dev_wait(g->dev, q, dev_mark(g->dev, Q_COMPUTE));
	comm_all_reduce(c, q, t);
	dev_wait(g->dev, q2, dev_mark(g->dev, q));
}

static bool is_tied(const struct grad *g, int bucket)
{
	return g->tied && g->tied->bucket == bucket;
}

static void reduce_bucket(struct grad *g, int bucket)
{
	const struct param_bucket *b = &g->params->buckets[bucket];
	if (g->partial && b->whole > 0)
		sum_before(g, g->groups->tensor, Q_TENSOR, tensor_rows(b->grads, 0, b->whole), Q_DATA);
	if (is_tied(g, bucket))
		sum_before(g, g->groups->ends, Q_PIPE, g->tied->grad, Q_DATA);
	dev_wait(g->dev, Q_DATA, dev_mark(g->dev, Q_COMPUTE));
	if (g->slices->count > 1)
		comm_reduce_scatter(g->groups->data, Q_DATA, slices_own(g->slices, b->grads), b->grads);
	else
		comm_all_reduce(g->groups->data, Q_DATA, b->grads);
	if (!g->overlap)
		dev_wait(g->dev, Q_COMPUTE, dev_mark(g->dev, Q_DATA));
	g->reduced[bucket] = true;
}

/* The sum over both ends must not stand on the queue before the exchanges that the first stage's last backward waits for,
 * nor before the other buckets: it is left to grad_reduce. */
void grad_final(struct grad *g, int bucket)
{
	if (!is_tied(g, bucket))
		reduce_bucket(g, bucket);
}

/* Where data ranks share the pieces of a parameter out, their squares are added first, by an order that does not know how
 * many stages there are. */
static void sum_pieces(struct grad *g, struct tensor squares)
{
	if (g->slices->count == 1)
		return;
	sum(g, g->groups->data, Q_DATA, squares);
	if (!g->first_copy)
		dev_zero(g->dev, Q_COMPUTE, squares);
}

static void ask(struct grad *g, bool stop)
{
	double asked = stop ? 1.0 : 0.0;
	dev_write(g->dev, Q_COMPUTE, part(g, TOTAL_STOP, 1), &asked);
}

void grad_reduce(struct grad *g, bool stop)
{
	struct tensor squares = part(g, TOTALS, g->vector.shape[0] - TOTALS);

	log_phase("gradient reduction");
	for (int i = 0; i < g->params->bucket_count; i++) {
		if (!g->reduced[i])
			reduce_bucket(g, i);
		g->reduced[i] = false;
	}
	dev_wait(g->dev, Q_COMPUTE, dev_mark(g->dev, Q_DATA));

	ask(g, stop);
	dev_zero(g->dev, Q_COMPUTE, squares);
	if (g->count > 0)
		op_square_sums(g->dev, &(struct op_square_sums){
			.sums = squares, .grads = g->owned, .slots = g->slots, .count = g->count,
		});
	sum_pieces(g, squares);
	sum(g, g->groups->world, Q_DATA, g->vector);
	op_step_verdict(g->dev, &(struct op_step_verdict){
		.totals = grad_totals(g), .sums = squares, .rules = g->rules,
	});
	log_phase(NULL);
}

void grad_totals_read(struct grad *g, double totals[TOTALS])
{
	dev_read(g->dev, Q_COMPUTE, totals, grad_totals(g));
	dev_finish(g->dev, dev_mark(g->dev, Q_COMPUTE));
}

void grad_totals_reduce(struct grad *g, bool stop, double totals[TOTALS])
{
	ask(g, stop);
	sum(g, g->groups->world, Q_DATA, grad_totals(g));
	grad_totals_read(g, totals);
}

char *grad_bad_name(const struct grad *g, int64_t first_bad, char *buf, size_t room)
{
	if (first_bad < 0) {
		snprintf(buf, room, "the loss");
		return buf;
	}
	const struct param *p = &g->params->params[first_bad / g->params->tensor];
	snprintf(buf, room, "the gradient of %s, tensor rank %d", p->name, (int)(first_bad % g->params->tensor));
	return buf;
}

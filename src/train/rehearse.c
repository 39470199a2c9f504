#include "train/rehearse.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Every chunk forward and backward, in slot 0, without its neighbours. */
static void perform(struct run *r)
{
	struct gpt *g = &r->gpt;
	struct tensor d = r->step.d[0];
	for (int i = 0; i < g->chunk_count; i++) {
		bool last = g->chunks[i].last;
		gpt_place(g, 0, i, 0, &(struct pass){.training = true});
		gpt_forward(g, 0, last ? (struct tensor){0} : r->step.y[0], grad_totals(&r->grad), last ? d : (struct tensor){0});
		if (g->wait_count == 0) {
			gpt_backward(g, 0, BACKWARD_BOTH, d);
			continue;
		}
		gpt_backward(g, 0, BACKWARD_INPUT, d);
		gpt_backward(g, 0, BACKWARD_WEIGHT, (struct tensor){0});
	}
	gpt_place(g, 0, 0, 0, &(struct pass){0});
	dev_finish(r->dev, dev_mark(r->dev, Q_COMPUTE));
}

/* Adds every rank's choices, the lowest rank's first: a key that is there already stays as it is. */
static void agree(struct tuning *all, const struct tuning *own, struct comm *world)
{
	int ranks = comm_size(world), most = 0, *counts = calloc((size_t)ranks, sizeof *counts);
	check(counts);
	comm_host_gather(world, counts, &own->count, sizeof own->count);
	for (int i = 0; i < ranks; i++)
		most = counts[i] > most ? counts[i] : most;
	size_t bytes = (size_t)most * sizeof(struct tuning_choice);
	struct tuning_choice *mine = calloc((size_t)most + 1, sizeof *mine), *lists = calloc((size_t)ranks, bytes + 1);
	check(mine && lists);
	if (own->count)
		memcpy(mine, own->list, (size_t)own->count * sizeof *mine);
	comm_host_gather(world, lists, mine, bytes);
	for (int i = 0; i < ranks; i++)
		for (int k = 0; k < counts[i]; k++) {
			const struct tuning_choice *c = &lists[i * most + k];
			if (!tuning_find(all, c->key))
				tuning_set(all, c->key, c->value);
		}
	free(mine);
	free(lists);
	free(counts);
}

/* Whether a rank's choices are not those that were agreed on. */
static bool any_differs(const struct tuning *agreed, const struct tuning *own, struct comm *world)
{
	int ranks = comm_size(world);
	char mine = false, *all = calloc((size_t)ranks, sizeof *all);
	check(all);
	for (int i = 0; i < own->count && !mine; i++) {
		const char *value = tuning_find(agreed, own->list[i].key);
		mine = !value || strcmp(value, own->list[i].value) != 0;
	}
	comm_host_gather(world, all, &mine, sizeof mine);
	bool any = memchr(all, true, (size_t)ranks) != NULL;
	free(all);
	return any;
}

/* What the checkpoint has beside: another mesh's shapes. What it had otherwise cannot be used on this device. */
static void keep(struct tuning *all, const struct tuning *before)
{
	bool other = false;
	for (int i = 0; i < before->count; i++) {
		const char *value = tuning_find(all, before->list[i].key);
		other = other || (value && strcmp(value, before->list[i].value) != 0);
		if (!value)
			tuning_set(all, before->list[i].key, before->list[i].value);
	}
	if (other && log_rank() == 0)
		log_warn("the checkpoint's algorithms of matrix products and attention are another library's or card's: chosen anew, so losses "
			 "may differ in their last bits from those that would have followed");
}

void rehearse(struct run *r, struct comm *world, const struct manifest_run *checkpoint, struct tuning *agreed)
{
	/* What each would take; what all have then, or why one cannot; what is left when that is known. Most often the second round
	 * finds that all have what was agreed on. */
	enum { ROUNDS = 3 };
	struct tuning before = {0};
	double begin = clock_now();

	for (int i = 0; i < checkpoint->tuning_count; i++)
		if (strlen(checkpoint->tuning[i].key) < TUNING_KEY && strlen(checkpoint->tuning[i].value) < TUNING_VALUE)
			tuning_set(&before, checkpoint->tuning[i].key, checkpoint->tuning[i].value);
	if (!dev_rehearse(r->dev, true)) {
		*agreed = before;
		return;
	}
	log_phase("rehearsal");
	dev_told(r->dev, &before);
	perform(r);
	for (int i = 0; i < ROUNDS; i++) {
		struct tuning own = {0};
		dev_choose(r->dev, &own, r->config->device.tune);
		bool done = i > 0 && !any_differs(agreed, &own, world);
		if (!done) {
			tuning_finish(agreed);
			agree(agreed, &own, world);
			dev_told(r->dev, agreed);
		}
		tuning_finish(&own);
		if (done)
			break;
	}
	keep(agreed, &before);
	dev_told(r->dev, agreed);
	dev_rehearse(r->dev, false);
	log_phase(NULL);
	log_info("rehearsed in %.1f s: algorithms of %d matrix products and attentions %s", clock_now() - begin, agreed->count,
		 before.count ? "as the checkpoint has them" : r->config->device.tune ? "timed" : "as the library offers them");
	tuning_finish(&before);
}

#include "plan/search_sketch.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

void search_apply(struct config *c, const struct search_layout *l)
{
	c->parallel.data = l->data;
	c->parallel.context = l->context;
	c->parallel.tensor = l->tensor;
	c->parallel.pipeline = l->pipeline;
	c->parallel.chunks = l->chunks;
	c->parallel.schedule = l->schedule;
	c->parallel.recompute = l->recompute;
	c->parallel.shard_optimizer = l->sharded;
	c->parallel.stages = "auto";
	c->batch.micro = l->micro;
}

/* Stages that stand for all: the first, which keeps most micro-batches; the second, which no middle one has more layers
 * than; the last, with the head. With zero-bubble later ones may hold more: what is planned in full is asked again. */
static int chosen(int stages, int list[3])
{
	int count = 0;
	list[count++] = 0;
	if (stages > 2)
		list[count++] = 1;
	if (stages > 1)
		list[count++] = stages - 1;
	return count;
}

void search_too_much(struct search_layout *l, const struct plan *p, int stage)
{
	const struct ledger *ledger = &p->stage[stage].ledger;
	char need[32], limit[32];
	int most = 0;
	for (int k = 0; k < MEMORY_KINDS; k++)
		if (ledger->arena[k] > ledger->arena[most])
			most = k;
	int64_t beside = p->memory_set ? p->stage[stage].overhead : 0;
	snprintf(l->reason, sizeof l->reason, "needs %s of %s%s, mostly %s",
		 text_bytes(need, sizeof need, (uint64_t)(p->stage[stage].total - beside)), p->memory_set ? "device.memory = " : "",
		 text_bytes(limit, sizeof limit, (uint64_t)(p->memory_set ? p->memory_own : p->memory_limit)),
		 memory_name((enum memory_kind)most));
}

void search_refuse(struct search_layout *l, const struct error *e)
{
	snprintf(l->reason, sizeof l->reason, "%.150s", e->code == CODE_USAGE && l->recompute == RECOMPUTE_AUTO
		 ? "does not fit even with full recompute" : e->text);
}

/* What a stage stands idle, of the time that the others take for one micro-batch. */
static double idle_share(const struct search_layout *l, int64_t micros)
{
	int64_t others = l->pipeline - 1, missing = micros < l->pipeline ? l->pipeline - micros : 0;
	/* weight parts fill a third of it for each micro-batch behind the first */
	if (l->schedule == PIPELINE_ZERO_BUBBLE)
		return (double)(2 * others - (micros <= others ? micros - 1 : others)) / (double)(3 * others);
	/* before each chunk but the first a rank waits for the micro-batches that do not fill the pipeline */
	return (double)(others + (l->chunks - 1) * missing) / (double)(others * l->chunks);
}

/* Stages alone, and what the slowest waits for the others; a middle one stands for all middle ones. */
static double together(const struct search_layout *l, int64_t global, const struct simulated_stage *alone, int count)
{
	double all = 0, slowest = 0, own = 0;
	int64_t micros = global / (l->data * l->micro);
	for (int i = 0; i < count; i++) {
		double once = alone[i].seconds[CAUSE_DATA] + alone[i].seconds[CAUSE_OPTIMIZER], seconds = 0;
		for (int c = 0; c < CAUSES; c++)
			seconds += alone[i].seconds[c];
		double work = (seconds - once) / (double)micros;
		all += work * (count == 3 && i == 1 ? (double)(l->pipeline - 2) : 1);
		if (seconds > slowest) {
			slowest = seconds;
			own = work;
		}
	}
	return l->pipeline == 1 ? slowest : slowest + (all - own) * idle_share(l, micros);
}

static struct simulated_stage alone(const struct plan *p, const struct record *record)
{
	struct timing timing = plan_timing(p);
	struct simulated_stage stage;
	simulate(&(struct simulate_options){.timing = &timing, .records = &record, .stages = 1, .alone = true}, &stage);
	return stage;
}

void search_sketch(struct search_layout *l, const struct plan_options *o, bool timed)
{
	struct plan p;
	struct error e = {0};
	struct record records[3] = {0};
	struct simulated_stage times[3];
	int list[3];

	l->sketch = 0;
	l->reason[0] = '\0';
	search_apply(o->config, l);
	if (!plan_prepare(&p, o, &e)) {
		const char *path = o->config->path;
		bool named = strncmp(e.text, path, strlen(path)) == 0;
		snprintf(l->reason, sizeof l->reason, "%.150s", named ? e.text + strlen(path) + 2 : e.text);
		return;
	}
	int count = chosen(p.stages, list);
	for (int i = 0; i < count && !(timed && *l->reason); i++) {
		if (!plan_count_stage(&p, o, list[i], timed ? &records[i] : NULL, &e)) {
			search_refuse(l, &e);
			break;
		}
		int64_t total = p.stage[list[i]].total;
		if (total > p.memory_limit && total > l->memory)
			search_too_much(l, &p, list[i]);
		else if (timed)
			times[i] = alone(&p, &records[i]);
		l->memory = total > l->memory ? total : l->memory;
	}
	if (timed && !*l->reason)
		l->sketch = together(l, o->config->batch.global, times, count);
	for (int i = 0; i < count; i++)
		record_finish(&records[i]);
	plan_finish(&p);
}

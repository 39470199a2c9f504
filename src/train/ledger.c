#include "train/ledger.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static struct ledger_group *group_of(struct ledger *l, const char *name, int ranks)
{
	for (int i = 0; i < l->groups; i++)
		if (strcmp(l->group[i].name, name) == 0)
			return &l->group[i];
	check(l->groups < LEDGER_GROUPS);
	struct ledger_group *g = &l->group[l->groups++];
	snprintf(g->name, sizeof g->name, "%s", name);
	g->ranks = ranks;
	return g;
}

const struct ledger_group *ledger_find(const struct ledger *l, const char *group)
{
	for (int i = 0; i < l->groups; i++)
		if (strcmp(l->group[i].name, group) == 0)
			return &l->group[i];
	return NULL;
}

static void add(void *context, const struct record_item *item)
{
	struct ledger *l = context;
	if (item->kind == RECORD_OP) {
		struct ledger_op *op = &l->op[item->what];
		op->calls++;
		op->flops += item->cost.flops;
		op->again += item->cost.again;
		op->bytes += item->cost.bytes;
		l->flops += item->cost.flops;
		l->again += item->cost.again;
	}
	if (item->kind == RECORD_COMM) {
		struct ledger_group *g = group_of(l, item->group, item->ranks);
		g->count.calls[item->what]++;
		g->count.bytes[item->what] += (int64_t)item->cost.bytes;
	}
}

/* What gpt_build takes from activation memory, by what it is for. */
static void count_saved(struct ledger *l, const struct gpt *g)
{
	struct block_row rows[BLOCK_TENSORS];
	int64_t kept_inputs = g->input_count < g->slot_count ? g->input_count : g->slot_count;

	block_rows(rows, gpt_block(g));
	for (int64_t i = 0; i < g->positions; i++)
		for (int t = BLOCK_X + 1; t < BLOCK_TENSORS; t++) {
			bool kept = g->slots[0].blocks[i].kept >> t & 1;
			l->saved[t] += kept ? (int64_t)rows[t].bytes * g->slot_count : 0;
			l->waiting += kept ? 0 : (int64_t)rows[t].bytes * g->wait_count;
		}
	l->saved[BLOCK_X] = (int64_t)rows[BLOCK_X].bytes * ((g->positions - 1) * g->slot_count + kept_inputs);
	l->ids = l->arena[MEMORY_ACTIVATIONS] - l->waiting;
	for (int t = 0; t < BLOCK_TENSORS; t++) {
		l->ids -= l->saved[t];
		snprintf(l->saved_name[t], LEDGER_NAME, "%s", rows[t].name);
	}
}

void ledger_make(struct ledger *l, const struct counted *c, const struct record *record)
{
	memset(l, 0, sizeof *l); /* to the last byte: they are compared */
	l->rank = c->mesh.rank;
	l->stage = c->mesh.at[AXIS_PIPELINE];
	l->workspace = (int64_t)dev_workspace(c->dev);
	record_each(record, add, l);
	for (int k = 0; k < MEMORY_KINDS; k++)
		l->arena[k] = (int64_t)c->run.memory.arena[k].used;
	count_saved(l, &c->run.gpt);
}

/* As much as the run's own device takes. */
static size_t same_workspace(void *dev, const struct dev_limits *limits)
{
	return dev_workspace(dev);
}

void ledger_of_run(struct ledger *l, const struct run *run)
{
	struct counted *c = malloc(sizeof *c);
	struct error e;
	check(c);
	if (!counted_open(c, run->config, &run->mesh, same_workspace, run->dev, &e))
		die(e.code, "%s", e.text);
	ledger_make(l, c, counted_step(c));
	counted_close(c);
	free(c);
}

static void traffic(cJSON *parent, const struct ledger *l)
{
	static const char *const calls[COMM_CALLS] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "exchange"};
	cJSON *all = json_put_object(parent, "traffic");
	for (int i = 0; i < l->groups; i++) {
		const struct ledger_group *g = &l->group[i];
		cJSON *o = json_put_object(all, g->name);
		json_put_count(o, "ranks", g->ranks);
		for (int k = 0; k < COMM_CALLS; k++) {
			if (g->count.calls[k] == 0)
				continue;
			cJSON *call = json_put_object(o, calls[k]);
			json_put_count(call, "calls", g->count.calls[k]);
			json_put_count(call, "bytes", g->count.bytes[k]);
		}
	}
}

cJSON *ledger_json(const struct ledger *l)
{
	cJSON *all = json_put_object(NULL, NULL);
	json_put_count(all, "rank", l->rank);
	json_put_count(all, "pipeline_stage", l->stage);
	json_put_number(all, "flops", l->flops);
	json_put_number(all, "flops_again", l->again);
	cJSON *ops = json_put_object(all, "ops");
	for (int i = 0; i < OP_COUNT; i++) {
		if (l->op[i].calls == 0)
			continue;
		cJSON *o = json_put_object(ops, op_name((enum op_id)i));
		json_put_count(o, "calls", l->op[i].calls);
		json_put_number(o, "flops", l->op[i].flops);
		json_put_number(o, "flops_again", l->op[i].again);
		json_put_number(o, "bytes", l->op[i].bytes);
	}
	traffic(all, l);
	cJSON *saved = json_put_object(all, "saved_activations");
	for (int t = 0; t < BLOCK_TENSORS; t++)
		json_put_count(saved, l->saved_name[t], l->saved[t]);
	json_put_count(saved, "waiting", l->waiting);
	json_put_count(saved, "ids", l->ids);
	cJSON *arenas = json_put_object(all, "arenas");
	for (int k = 0; k < MEMORY_KINDS; k++)
		json_put_count(arenas, memory_name((enum memory_kind)k), l->arena[k]);
	json_put_count(arenas, "workspace", l->workspace);
	return all;
}

static bool alike(const struct ledger *a, const struct ledger *b)
{
	const size_t from = offsetof(struct ledger, stage);
	return memcmp((const char *)a + from, (const char *)b + from, sizeof *a - from) == 0;
}

cJSON *ledger_json_all(const struct ledger *all, int ranks)
{
	cJSON *list = json_put_array(NULL, NULL);
	bool *written = calloc((size_t)ranks, sizeof *written);
	check(written);
	for (int i = 0; i < ranks; i++) {
		if (written[i])
			continue;
		cJSON *o = ledger_json(&all[i]), *same = json_put_array(o, "ranks");
		for (int k = i; k < ranks; k++)
			if (!written[k] && alike(&all[i], &all[k])) {
				written[k] = true;
				json_put(same, NULL, cJSON_CreateNumber(all[k].rank));
			}
		json_put(list, NULL, o);
	}
	free(written);
	return list;
}

#include "model/recompute.h"
#include "train/run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"

/* Bytes that the rank takes as measured. */
static int64_t needed(const struct run *r)
{
	return (int64_t)(memory_bytes(&r->memory) + dev_workspace(r->dev));
}

/* The largest n of the ranks of c. */
static int64_t largest(struct comm *c, int64_t n)
{
	int ranks = comm_size(c);
	int64_t *all = calloc((size_t)ranks, sizeof *all);
	check(all);
	comm_host_gather(c, all, &n, sizeof n);
	for (int i = 0; i < ranks; i++)
		n = all[i] > n ? all[i] : n;
	free(all);
	return n;
}

void run_fit_memory(struct run *r)
{
	const struct gpt *g = &r->gpt;
	struct block_row rows[BLOCK_TENSORS];
	int64_t excess = needed(r) - r->config->device.memory;

	/* What is computed again is summed over tensor ranks again, and keys go round context ranks again, so both must choose
	 * alike; what they take may differ, as the ops' workspace does with the number of threads. */
	excess = largest(r->groups.context, largest(r->groups.tensor, excess));
	block_rows(rows, gpt_block(g));
	recompute_fit(&(struct recompute_fit){
		.rows = rows, .layers = g->positions, .slots = g->slot_count - g->wait_count, .excess = excess,
	}, r->kept);
}

/* What would need less, of what is not yet done. */
enum { LESS_ROOM = 192 };
static const char *less(char buf[LESS_ROOM], const struct run *r)
{
	const struct parallel_settings *p = &r->config->parallel;
	snprintf(buf, LESS_ROOM, "%s%smore %stensor or pipeline ranks or a smaller batch.micro need less",
		 !p->shard_optimizer && comm_size(r->groups.data) > 1 ? "parallel.shard_optimizer = true, " : "",
		 p->recompute < RECOMPUTE_FULL ? "parallel.recompute = full, " : "", p->shard_optimizer ? "data, " : "");
	return buf;
}

bool run_check_memory(const struct run *r, struct error *e)
{
	char list[MEMORY_LIST], limit[32], need[32], workspace[32], other[LESS_ROOM];
	size_t most = (size_t)r->config->device.memory, room = dev_room(r->dev);
	bool set = most > 0 && (room == 0 || most < room);
	if (!set)
		most = room;
	if (most == 0 || (size_t)needed(r) <= most)
		return true;
	text_bytes(limit, sizeof limit, most);
	text_bytes(need, sizeof need, (size_t)needed(r));
	text_bytes(workspace, sizeof workspace, dev_workspace(r->dev));
	memory_list(list, &r->memory);
	static const char *const evens[] = {
		[RECOMPUTE_NONE] = "", [RECOMPUTE_SELECTIVE] = "", [RECOMPUTE_FULL] = " even with parallel.recompute = full",
		[RECOMPUTE_AUTO] = " with parallel.recompute = full, and no other choice fits either",
	};
	const char *even = evens[r->config->parallel.recompute];
	if (set)
		return error_set(e, CODE_USAGE, "device.memory = %s is too little: rank %d needs %s%s (%s, workspace %s); %s", limit,
				 log_rank(), need, even, list, workspace, less(other, r));
	return error_set(e, CODE_MACHINE, "%s has %s free, too little: rank %d needs %s%s (%s, workspace %s); %s", dev_name(r->dev),
			 limit, log_rank(), need, even, list, workspace, less(other, r));
}

#include "model/recompute.h"
#include "train/run.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"

/* Bytes that the rank takes as measured. */
static int64_t needed(const struct run *r)
{
	return (int64_t)(memory_bytes(&r->memory) + dev_workspace(r->dev));
}

void run_fit_memory(struct run *r)
{
	const struct gpt *g = &r->gpt;
	struct block_row rows[BLOCK_TENSORS];
	int ranks = comm_size(r->groups.tensor);
	int64_t excess = needed(r) - r->config->device.memory, *all = calloc((size_t)ranks, sizeof *all);

	check(all);
	/* What is computed again is summed over tensor ranks again, so they must choose alike. */
	comm_host_gather(r->groups.tensor, all, &excess, sizeof excess);
	for (int i = 0; i < ranks; i++)
		excess = all[i] > excess ? all[i] : excess;
	free(all);
	block_rows(rows, &g->chunks[0].blocks[0]);
	recompute_fit(&(struct recompute_fit){
		.rows = rows, .layers = g->positions, .slots = g->slot_count - g->wait_count, .excess = excess,
	}, r->kept);
}

bool run_check_memory(const struct run *r, struct error *e)
{
	char list[MEMORY_LIST], limit[32], need[32], workspace[32];
	int64_t most = r->config->device.memory;
	if (most == 0 || needed(r) <= most)
		return true;
	text_bytes(limit, sizeof limit, (size_t)most);
	text_bytes(need, sizeof need, (size_t)needed(r));
	text_bytes(workspace, sizeof workspace, dev_workspace(r->dev));
	return error_set(e, CODE_USAGE, "device.memory = %s is too little: rank %d needs %s%s (%s, workspace %s); more "
			 "tensor or pipeline ranks%s or a smaller batch.micro need less", limit, log_rank(), need,
			 r->config->parallel.recompute >= RECOMPUTE_FULL ? " even with parallel.recompute = full" : "",
			 memory_list(list, &r->memory), workspace,
			 r->config->parallel.recompute >= RECOMPUTE_FULL ? "" : ", parallel.recompute = auto");
}

#include <stdio.h>
#include <string.h>

#include "train/optim.h"

/* What a piece has of its parameter's box, as boxes; the last one takes the padded rows behind it along, which a load makes
 * zero. A piece that has padded rows alone is an empty box. */
static void add(struct state *state, const struct slices_piece *piece, const char *kind, struct tensor local, bool owner,
		bool optional)
{
	const struct param *p = piece->param;
	struct state_entry entry = {.dtype = local.dtype, .dims = p->dims, .owner = owner, .optional = optional};
	struct box boxes[BOX_RANGE];
	int64_t here = box_count(&p->box), end = piece->begin + piece->count, at = 0;
	int n = piece->begin < here ? box_range(boxes, &p->box, piece->begin, end < here ? end : here) : 0;

	memcpy(entry.shape, p->shape, sizeof entry.shape);
	snprintf(entry.name, sizeof entry.name, "%s/%s", kind, p->name);
	if (n == 0) {
		boxes[n] = p->box;
		boxes[n].end[0] = boxes[n].begin[0];
		n++;
	}
	for (int i = 0; i < n; i++) {
		int64_t count = i + 1 < n ? box_count(&boxes[i]) : piece->count - at;
		entry.box = boxes[i];
		entry.local = tensor_rows(local, at, count);
		state_add(state, &entry);
		at += count;
	}
}

void optim_add_state(const struct optim *o, struct state *state)
{
	const struct slices *s = o->o.slices;
	int ranks = o->o.data ? comm_size(o->o.data) : 1, rank = o->o.data ? comm_rank(o->o.data) : 0;

	for (int i = 0; i < s->pieces_count; i++) {
		const struct slices_piece *piece = &s->pieces[i];
		const struct adamw_item *item = &o->items[i];
		/* Layers begin with another rank each, or the same ones would write all matrices where a layer's parameters
		 * are a multiple of the ranks. */
		int64_t turn = piece->param - o->o.params->params + piece->param->layer + 1;
		bool mine = s->count > 1 || turn % ranks == rank;
		bool owner = piece->param->owner && mine;
		add(state, piece, "weight", item->master, owner, false);
		add(state, piece, "m", item->m, owner, true);
		add(state, piece, "v", item->v, owner, true);
	}
}

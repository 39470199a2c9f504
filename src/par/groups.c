#include "par/groups.h"

bool groups_open(struct groups *g, struct comm *world, const struct mesh *mesh, struct error *e)
{
	const int *at = mesh->at, *size = mesh->size;
	int t = at[AXIS_TENSOR], c = at[AXIS_CONTEXT], d = at[AXIS_DATA], p = at[AXIS_PIPELINE];
	int replica = mesh_copy(mesh);
	int copies = size[AXIS_CONTEXT] * size[AXIS_DATA];
	int stages = size[AXIS_PIPELINE];
	bool is_end = stages > 1 && (p == 0 || p == stages - 1);
	int line = t + size[AXIS_TENSOR] * replica; /* the pipeline that this rank is on */

	*g = (struct groups){.world = world};
	if (comm_split(&g->tensor, world, "tensor", replica + copies * p, t, e) &&
	    comm_split(&g->context, world, "context", t + size[AXIS_TENSOR] * (d + size[AXIS_DATA] * p), c, e) &&
	    comm_split(&g->data, world, "data", t + size[AXIS_TENSOR] * p, replica, e) &&
	    comm_split(&g->pipe, world, "pipeline", line, p, e) &&
	    comm_split(&g->ends, world, "embedding", is_end ? line : -1, p, e))
		return true;
	groups_close(g);
	return false;
}

void groups_close(struct groups *g)
{
	comm_close(g->ends);
	comm_close(g->pipe);
	comm_close(g->data);
	comm_close(g->context);
	comm_close(g->tensor);
	*g = (struct groups){0};
}

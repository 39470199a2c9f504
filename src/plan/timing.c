#include "plan/timing.h"

#include <math.h>
#include <string.h>

#include "base/divisor.h"
#include "comm/comm.h"
#include "par/groups.h"

/* Nodes hold ranks in order. A group's members are `stride` apart, and groups that lie in one another fill a block of ranks; the
 * first and last stage's are all of them. Where blocks and nodes do not divide, some block is cut where a node ends: the group
 * that has fewest ranks on one side is the one that all others wait for. */
static struct hardware_group group_of(const struct timing *t, const char *name, int ranks)
{
	int devices = (int)t->hardware->devices_per_node.value, world = mesh_world(t->mesh), stride = groups_stride(t->mesh, name);
	bool ends = strcmp(name, "embedding") == 0;
	int block = ends ? world : stride * ranks;
	int inside = (int)divisor_common(block, devices) / stride;
	if (world <= devices || devices % block == 0)
		inside = ranks;
	if (inside < 1)
		inside = 1;
	int talking = ends ? world / t->mesh->size[AXIS_PIPELINE] : world;
	int present = talking < devices ? talking : devices;
	return (struct hardware_group){.size = ranks, .in_node = inside, .groups_in_node = present > inside ? present / inside : 1};
}

static double collective(const struct timing *t, const struct record_item *item)
{
	struct record_item moved = *item;
	bool gradients = (strcmp(item->group, "data") == 0 || strcmp(item->group, "embedding") == 0) && item->dtype == F32;
	if (t->half_gradients && gradients)
		moved.cost.bytes /= 2;
	if (t->stack->whole_recompute && item->cost.again > 0)
		moved.cost.bytes *= 2; /* the sum behind the MLP too */
	return times_collective(t->hardware, t->stack, &moved, group_of(t, item->group, item->ranks));
}

/* An exchange with the neighbours in a ring of ranks that are all alike; along the pipeline they are not. */
static double around(const struct timing *t, const struct record_item *item)
{
	struct hardware_group g = group_of(t, item->group, item->ranks);
	double most = 0;
	if (strcmp(item->group, "pipeline") == 0)
		return 0;
	for (int i = 0; i < item->transfers; i++)
		most = fmax(most, item->transfer[i].bytes);
	return hardware_exchange(t->hardware, g.in_node == g.size, most) * t->stack->communication_time;
}

double timing_item(const struct timing *t, const struct record_item *item)
{
	if (item->kind == RECORD_COMM)
		return item->what == COMM_EXCHANGE ? around(t, item) : collective(t, item);
	double seconds = times_op(t->hardware, t->stack, item);
	if (t->attention_again && item->kind == RECORD_OP && item->what == OP_attention_backward)
		seconds += times_unfused(t->hardware, t->stack, item->dtype, item->m, item->n, item->k, false);
	return seconds;
}

double timing_transfer(const struct timing *t, int stage, int peer, double bytes)
{
	int devices = (int)t->hardware->devices_per_node.value, stride = groups_stride(t->mesh, "pipeline");
	int first = stage < peer ? stage : peer, last = stage < peer ? peer : stage;
	bool same_node = first * stride / devices == (last * stride + stride - 1) / devices; /* of all their ranks */
	return times_exchange(t->hardware, t->stack, same_node, t->rows_split ? 1 : t->mesh->size[AXIS_TENSOR], bytes);
}

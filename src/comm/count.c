#include "comm/count.h"

#include <string.h>

#include "comm/transport.h"
#include "dev/cost/cost.h"

static bool count_start(struct comm *world, struct error *e)
{
	return true;
}

static bool count_split(struct comm *child, int color, int key, struct error *e)
{
	const struct count_layout *layout = child->parent->impl;
	child->impl = child->parent->impl;
	child->rank = 0;
	child->size = 1;
	if (color >= 0)
		layout->place(layout->context, child->name, &child->rank, &child->size);
	return true;
}

static void count_close(struct comm *c)
{
}

static struct record_item item_of(const struct comm *c, enum queue q, enum comm_call call, const char *name, struct tensor t)
{
	return (struct record_item){
		.kind = RECORD_COMM, .queue = q, .what = call, .name = name,
		.cost = {.bytes = (double)tensor_bytes(t), .again = c->dev->again ? (double)tensor_bytes(t) : 0},
		.dtype = t.dtype, .group = c->name, .ranks = c->size,
	};
}

static void add(const struct comm *c, struct record_item item)
{
	record_add(cost_record(c->dev), &item);
}

static void count_all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	add(c, item_of(c, q, COMM_ALL_REDUCE, "all-reduce", t));
}

static void count_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	add(c, item_of(c, q, COMM_ALL_GATHER, "all-gather", out));
}

static void count_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	add(c, item_of(c, q, COMM_REDUCE_SCATTER, "reduce-scatter", in));
}

static void count_broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	add(c, item_of(c, q, COMM_BROADCAST, "broadcast", t));
}

static void count_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	struct record_item item = item_of(c, q, COMM_EXCHANGE, "exchange", transfers[0].tensor);
	item.cost.bytes = 0;
	check(count <= RECORD_TRANSFERS);
	for (int i = 0; i < count; i++) {
		double bytes = (double)tensor_bytes(transfers[i].tensor);
		item.transfer[item.transfers++] = (struct record_transfer){
			.peer = transfers[i].peer, .send = transfers[i].kind == TRANSFER_SEND, .bytes = bytes,
		};
		item.cost.bytes += bytes;
	}
	add(c, item);
}

static void count_host_gather(struct comm *c, void *out, const void *in, size_t bytes)
{
	for (int i = 0; i < c->size; i++)
		memcpy((char *)out + (size_t)i * bytes, in, bytes);
}

static void count_host_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
}

const struct transport transport_count = {
	.name = "count",
	.open = count_start,
	.split = count_split,
	.close = count_close,
	.all_reduce = count_all_reduce,
	.all_gather = count_all_gather,
	.reduce_scatter = count_reduce_scatter,
	.broadcast = count_broadcast,
	.exchange = count_exchange,
	.host_gather = count_host_gather,
	.host_broadcast = count_host_broadcast,
};

bool count_open(struct comm **world, struct device *dev, int rank, int size, const struct count_layout *layout,
		struct error *e)
{
	check(dev->backend == &backend_cost);
	if (!comm_open(world, &transport_count, dev, rank, size, e))
		return false;
	union {
		const struct count_layout *given;
		void *kept;
	} pointer = {.given = layout};
	(*world)->impl = pointer.kept;
	return true;
}

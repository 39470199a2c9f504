#include "card_nccl.h"

#include <stdlib.h>
#include <string.h>

#include "comm/launch.h"

static cudaStream_t stream_of(const struct comm *c, enum queue q)
{
	return card_stream(card_of(c->dev), q);
}

static struct nccl_group *group_of(const struct comm *c)
{
	return c->impl;
}

static ncclConfig_t settings(void)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	config.splitShare = 0;
	return config;
}

/* What NCCL reads from the environment when its first communicator is made; a user's own word wins. */
static void set_environment(void)
{
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", false); /* 2.26 and later */
	setenv("NCCL_RUNTIME_CONNECT", "0", false);       /* connect everything when the communicator is made */
}

static bool world_open(struct comm *world, struct error *e)
{
	ncclUniqueId own, *all = calloc((size_t)world->size, sizeof *all);
	ncclConfig_t config = settings();
	ncclComm_t nccl = NULL;

	check(all);
	memset(&own, 0, sizeof own);
	set_environment();
	if (world->rank == 0)
		nccl_must(ncclGetUniqueId(&own), NULL, "ncclGetUniqueId", world->name);
	bool good = launch_gather(all, &own, sizeof own, world->dev->timeout, e);
	own = all[0];
	free(all);
	if (!good)
		return false;
	nccl_must(ncclCommInitRankConfig(&nccl, world->size, own, world->rank, &config), nccl, "ncclCommInitRank", world->name);
	nccl_settle(world->dev, nccl, "ncclCommInitRank", world->name);

	struct nccl_world *w = calloc(1, sizeof *w);
	check(w);
	w->room = card_take(world->dev, NCCL_ROOM);
	w->pinned = card_take_host(world->dev, NCCL_ROOM);
	if (!w->room || !w->pinned)
		die(CODE_MACHINE, "%s: no room for %d bytes of NCCL's host calls", dev_name(world->dev), (int)NCCL_ROOM);
	world->dev->watched = w;
	world->dev->watch = nccl_watch;
	nccl_group_open(world, nccl, w);
	return true;
}

static bool split(struct comm *child, int color, int key, struct error *e)
{
	struct nccl_group *parent = child->parent->impl;
	ncclConfig_t config = settings();
	ncclComm_t nccl = NULL;
	ncclResult_t rc = ncclCommSplit(parent->nccl, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &nccl, &config);
	nccl_must(rc, parent->nccl, "ncclCommSplit", child->name);
	nccl_settle(child->dev, parent->nccl, "ncclCommSplit", child->name);
	if (color < 0)
		return true;
	nccl_settle(child->dev, nccl, "ncclCommSplit", child->name);
	nccl_must(ncclCommUserRank(nccl, &child->rank), nccl, "ncclCommUserRank", child->name);
	nccl_must(ncclCommCount(nccl, &child->size), nccl, "ncclCommCount", child->name);
	nccl_group_open(child, nccl, parent->world);
	return true;
}

static void close_group(struct comm *c)
{
	struct nccl_world *w = group_of(c)->world;
	nccl_group_close(c);
	if (c->parent)
		return;
	c->dev->watch = NULL;
	for (int q = 0; q < QUEUES; q++)
		for (int i = 0; i < NCCL_CALLS; i++)
			if (w->calls[q][i].ended)
				cudaEventDestroy(w->calls[q][i].ended);
	card_give_back(c->dev, w->room);
	card_give_back_host(c->dev, w->pinned);
	free(w);
}

static ncclDataType_t type_of(enum dtype t)
{
	static const ncclDataType_t types[DTYPE_COUNT] = {
		[F64] = ncclFloat64, [F32] = ncclFloat32, [BF16] = ncclBfloat16, [F16] = ncclFloat16,
		[I32] = ncclInt32, [I64] = ncclInt64, [U8] = ncclUint8,
	};
	return types[t];
}

static void done(struct comm *c, enum queue q, ncclResult_t rc, const char *call)
{
	nccl_must(rc, group_of(c)->nccl, call, c->name);
	nccl_called(c, q, call);
}

static void all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	done(c, q, ncclAllReduce(t.data, t.data, (size_t)tensor_count(t), type_of(t.dtype), ncclSum, group_of(c)->nccl,
				 stream_of(c, q)), "all-reduce");
}

static void all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	done(c, q, ncclAllGather(in.data, out.data, (size_t)tensor_count(in), type_of(in.dtype), group_of(c)->nccl,
				 stream_of(c, q)), "all-gather");
}

static void reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	done(c, q, ncclReduceScatter(in.data, out.data, (size_t)tensor_count(out), type_of(in.dtype), ncclSum,
				     group_of(c)->nccl, stream_of(c, q)), "reduce-scatter");
}

static void broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	done(c, q, ncclBroadcast(t.data, t.data, (size_t)tensor_count(t), type_of(t.dtype), root, group_of(c)->nccl,
				 stream_of(c, q)), "broadcast");
}

static void exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	ncclComm_t nccl = group_of(c)->nccl;
	nccl_must(ncclGroupStart(), nccl, "exchange", c->name);
	for (int i = 0; i < count; i++) {
		const struct transfer *t = &transfers[i];
		size_t n = (size_t)tensor_count(t->tensor);
		if (n == 0)
			continue;
		ncclResult_t rc = t->kind == TRANSFER_SEND
			? ncclSend(t->tensor.data, n, type_of(t->tensor.dtype), t->peer, nccl, stream_of(c, q))
			: ncclRecv(t->tensor.data, n, type_of(t->tensor.dtype), t->peer, nccl, stream_of(c, q));
		nccl_must(rc, nccl, "exchange", c->name);
	}
	done(c, q, ncclGroupEnd(), "exchange");
}

/* Host calls go through the card, a part that fits the room at a time. */
static void host_gather(struct comm *c, void *out, const void *in, size_t bytes)
{
	struct nccl_world *w = group_of(c)->world;
	size_t size = (size_t)c->size, part = NCCL_ROOM / size;
	check(part > 0);
	for (size_t at = 0; at < bytes; at += part) {
		size_t n = bytes - at < part ? bytes - at : part;
		char *own = w->room + (size_t)c->rank * n;
		memcpy(w->pinned, (const char *)in + at, n);
		card_write(c->dev, Q_COPY, own, w->pinned, n);
		all_gather(c, Q_COPY, tensor_2d(w->room, U8, c->size, (int64_t)n), tensor_2d(own, U8, 1, (int64_t)n));
		card_read(c->dev, Q_COPY, w->pinned, w->room, n * size);
		card_finish(c->dev, card_mark(c->dev, Q_COPY));
		for (size_t r = 0; r < size; r++)
			memcpy((char *)out + r * bytes + at, w->pinned + r * n, n);
	}
}

static void host_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
	struct nccl_world *w = group_of(c)->world;
	for (size_t at = 0; at < bytes; at += NCCL_ROOM) {
		size_t n = bytes - at < NCCL_ROOM ? bytes - at : NCCL_ROOM;
		memcpy(w->pinned, (char *)data + at, n);
		card_write(c->dev, Q_COPY, w->room, w->pinned, n);
		broadcast(c, Q_COPY, tensor_1d(w->room, U8, (int64_t)n), root);
		card_read(c->dev, Q_COPY, w->pinned, w->room, n);
		card_finish(c->dev, card_mark(c->dev, Q_COPY));
		memcpy((char *)data + at, w->pinned, n);
	}
}

const struct transport transport_nccl = {
	.name = "nccl",
	.open = world_open,
	.split = split,
	.close = close_group,
	.all_reduce = all_reduce,
	.all_gather = all_gather,
	.reduce_scatter = reduce_scatter,
	.broadcast = broadcast,
	.exchange = exchange,
	.host_gather = host_gather,
	.host_broadcast = host_broadcast,
};

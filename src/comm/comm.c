#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "comm/transport.h"

/* A group of one needs nothing moved: it takes the transport of one rank, whatever the job's. */
static const struct transport *way(const struct comm *c)
{
	return c->size == 1 ? &transport_self : c->transport;
}

static void count_call(struct comm *c, enum comm_call call, size_t bytes)
{
	if (c->size == 1)
		return;
	c->count.calls[call]++;
	c->count.bytes[call] += (int64_t)bytes;
}

static bool whole(const struct transport *t)
{
	return t->name && t->open && t->split && t->close && t->all_reduce && t->all_gather && t->reduce_scatter &&
	       t->broadcast && t->exchange && t->host_gather && t->host_broadcast;
}

bool comm_open(struct comm **out, const struct transport *transport, struct device *dev, int rank, int size,
	       struct error *e)
{
	check(whole(transport) && size >= 1 && rank >= 0 && rank < size);
	struct comm *c = calloc(1, sizeof *c);
	if (!c)
		die(CODE_MACHINE, "out of memory");
	c->transport = transport;
	c->dev = dev;
	c->name = "world";
	c->rank = rank;
	c->size = size;
	if (!transport->open(c, e)) {
		free(c);
		return false;
	}
	*out = c;
	return true;
}

bool comm_split(struct comm **out, struct comm *parent, const char *name, int color, int key, struct error *e)
{
	check(color >= -1);
	struct comm *c = calloc(1, sizeof *c);
	if (!c)
		die(CODE_MACHINE, "out of memory");
	c->transport = parent->transport;
	c->dev = parent->dev;
	c->parent = parent;
	c->name = name;
	*out = NULL;
	if (!parent->transport->split(c, color, key, e)) {
		free(c);
		return false;
	}
	if (color < 0)
		free(c);
	else
		*out = c;
	return true;
}

void comm_close(struct comm *c)
{
	if (!c)
		return;
	c->transport->close(c);
	free(c);
}

int comm_rank(const struct comm *c)
{
	return c->rank;
}

int comm_size(const struct comm *c)
{
	return c->size;
}

const char *comm_name(const struct comm *c)
{
	return c->name;
}

struct comm_count comm_count(const struct comm *c)
{
	return c->count;
}

static bool queue_good(enum queue q)
{
	return q < QUEUES;
}

static bool tensor_good(struct tensor t)
{
	return t.dims >= 1 && t.dims <= TENSOR_DIMS && (t.data || tensor_count(t) == 0);
}

/* `large` is `size` times `small` along the first dimension. */
static bool stacks(struct tensor large, struct tensor small, int size)
{
	if (!tensor_good(large) || !tensor_good(small) || large.dtype != small.dtype || large.dims != small.dims)
		return false;
	for (int i = 1; i < large.dims; i++)
		if (large.shape[i] != small.shape[i])
			return false;
	return large.shape[0] == small.shape[0] * size;
}

/* `small` lies in its place in `large` or nowhere in it. */
static bool placed(struct tensor large, struct tensor small, int rank)
{
	const char *l = large.data, *s = small.data;
	size_t bytes = tensor_bytes(small);
	return s == l + (size_t)rank * bytes || s + bytes <= l || s >= l + tensor_bytes(large);
}

void comm_all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	check(queue_good(q) && tensor_good(t) && dtype_is_float(t.dtype));
	if (tensor_count(t) == 0)
		return;
	count_call(c, COMM_ALL_REDUCE, tensor_bytes(t));
	way(c)->all_reduce(c, q, t);
}

void comm_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	check(queue_good(q) && stacks(out, in, c->size));
	if (tensor_count(in) == 0)
		return;
	check(placed(out, in, c->rank));
	count_call(c, COMM_ALL_GATHER, tensor_bytes(out));
	way(c)->all_gather(c, q, out, in);
}

void comm_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	check(queue_good(q) && stacks(in, out, c->size) && dtype_is_float(in.dtype));
	if (tensor_count(out) == 0)
		return;
	check(placed(in, out, c->rank));
	count_call(c, COMM_REDUCE_SCATTER, tensor_bytes(in));
	way(c)->reduce_scatter(c, q, out, in);
}

void comm_broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	check(queue_good(q) && tensor_good(t) && root >= 0 && root < c->size);
	if (tensor_count(t) == 0)
		return;
	count_call(c, COMM_BROADCAST, tensor_bytes(t));
	way(c)->broadcast(c, q, t, root);
}

void comm_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	size_t bytes = 0;
	check(queue_good(q) && count >= 0 && count <= EXCHANGE_MAX);
	for (int i = 0; i < count; i++) {
		const struct transfer *t = &transfers[i];
		check(t->peer >= 0 && t->peer < c->size && tensor_good(t->tensor));
		check(t->kind == TRANSFER_SEND || t->kind == TRANSFER_RECEIVE);
		bytes += tensor_bytes(t->tensor);
	}
	if (count == 0)
		return;
	count_call(c, COMM_EXCHANGE, bytes);
	way(c)->exchange(c, q, transfers, count);
}

void comm_host_gather(struct comm *c, void *out, const void *in, size_t bytes)
{
	if (bytes)
		way(c)->host_gather(c, out, in, bytes);
}

void comm_host_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
	check(root >= 0 && root < c->size);
	if (bytes)
		way(c)->host_broadcast(c, data, bytes, root);
}

void comm_barrier(struct comm *c)
{
	char here = 1, *all = malloc((size_t)c->size);
	if (!all)
		die(CODE_MACHINE, "out of memory");
	comm_host_gather(c, all, &here, 1);
	free(all);
}

bool comm_agree(struct comm *c, struct error *e)
{
	int failed = -1, *codes = malloc((size_t)c->size * sizeof *codes);
	if (!codes)
		die(CODE_MACHINE, "out of memory");
	comm_host_gather(c, codes, &e->code, sizeof *codes);
	for (int i = c->size - 1; i >= 0; i--)
		if (codes[i])
			failed = i;
	free(codes);
	if (failed < 0)
		return true;
	comm_host_broadcast(c, e, sizeof *e, failed);
	return false;
}

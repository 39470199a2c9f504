/* twin.h: the collectives of comm.h on host tensors, whatever the device: where its memory is apart, each call runs on twins
 * there, copied down before and up behind it by the same queue. Results are on the host after twin_finish of the queue. */
#ifndef MTRAIN_TESTS_LAUNCH_TWIN_H
#define MTRAIN_TESTS_LAUNCH_TWIN_H

#include <stdlib.h>

#include "comm/transport.h"

enum { TWINS = 1024 };

static struct {
	void *memory;
	enum queue queue;
} twins[TWINS];
static int twin_count;

static inline bool twin_needed(const struct comm *c)
{
	return c->dev->backend->apart;
}

/* Device memory like t's, with its elements. */
static inline struct tensor twin_of(struct comm *c, enum queue q, struct tensor t)
{
	struct error e;
	struct tensor twin = t;
	check(twin_count < TWINS);
	if (!dev_take(c->dev, &twin.data, tensor_bytes(t), &e))
		die(e.code, "%s", e.text);
	twins[twin_count].memory = twin.data;
	twins[twin_count++].queue = q;
	dev_write(c->dev, q, twin, t.data);
	return twin;
}

static inline void twin_all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	struct tensor d = twin_needed(c) ? twin_of(c, q, t) : t;
	comm_all_reduce(c, q, d);
	if (twin_needed(c))
		dev_read(c->dev, q, t.data, d);
}

/* `small` lies in `large`, or has memory of its own. */
static inline struct tensor twin_within(struct comm *c, enum queue q, struct tensor small, struct tensor large, struct tensor twin)
{
	ptrdiff_t at = (char *)small.data - (char *)large.data;
	if (at < 0 || at >= (ptrdiff_t)tensor_bytes(large))
		return twin_of(c, q, small);
	small.data = (char *)twin.data + at;
	return small;
}

static inline void twin_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	if (!twin_needed(c)) {
		comm_all_gather(c, q, out, in);
		return;
	}
	struct tensor d = twin_of(c, q, out);
	comm_all_gather(c, q, d, twin_within(c, q, in, out, d));
	dev_read(c->dev, q, out.data, d);
}

static inline void twin_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	if (!twin_needed(c)) {
		comm_reduce_scatter(c, q, out, in);
		return;
	}
	struct tensor d = twin_of(c, q, in), small = twin_within(c, q, out, in, d);
	comm_reduce_scatter(c, q, small, d);
	dev_read(c->dev, q, out.data, small);
}

static inline void twin_broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	struct tensor d = twin_needed(c) ? twin_of(c, q, t) : t;
	comm_broadcast(c, q, d, root);
	if (twin_needed(c))
		dev_read(c->dev, q, t.data, d);
}

static inline void twin_exchange(struct comm *c, enum queue q, const struct transfer *list, int count)
{
	struct transfer d[EXCHANGE_MAX];
	for (int i = 0; i < count; i++) {
		d[i] = list[i];
		if (twin_needed(c))
			d[i].tensor = twin_of(c, q, list[i].tensor);
	}
	comm_exchange(c, q, d, count);
	for (int i = 0; i < count; i++)
		if (twin_needed(c) && list[i].kind == TRANSFER_RECEIVE)
			dev_read(c->dev, q, list[i].tensor.data, d[i].tensor);
}

static inline void twin_finish(struct device *dev, enum queue q)
{
	int kept = 0;
	dev_finish(dev, dev_mark(dev, q));
	for (int i = 0; i < twin_count; i++) {
		if (twins[i].queue == q)
			dev_give_back(dev, twins[i].memory);
		else
			twins[kept++] = twins[i];
	}
	twin_count = kept;
}

#endif

#include "dev/device.h"

#include "dev/backend.h"

#include <stdlib.h>
#include <string.h>

const char *queue_name(enum queue q)
{
	static const char *const names[QUEUES] = {"compute", "tensor", "context", "pipe", "data", "copy"};
	return names[q];
}

/* A table of function pointers is whole when no entry is NULL. */
static bool whole(const void *table, size_t bytes)
{
	void (*entry)(void);
	for (size_t at = 0; at < bytes; at += sizeof entry) {
		memcpy(&entry, (const char *)table + at, sizeof entry);
		if (!entry)
			return false;
	}
	return true;
}

bool dev_open(struct device **out, const struct backend *backend, const struct dev_options *options, struct error *e)
{
	size_t functions = offsetof(struct backend, open);
	check(whole((const char *)backend + functions, sizeof *backend - functions));
	struct device *dev = calloc(1, sizeof *dev);
	if (!dev)
		return error_set(e, CODE_MACHINE, "out of memory");
	dev->backend = backend;
	dev->timeout = options->timeout;
	if (!backend->open(dev, options, e)) {
		free(dev);
		return false;
	}
	check(whole(dev->ops, sizeof *dev->ops));
	*out = dev;
	return true;
}

void dev_close(struct device *dev)
{
	if (!dev)
		return;
	dev->backend->close(dev);
	free(dev);
}

bool dev_reserve(struct device *dev, const struct dev_limits *limits, struct error *e)
{
	check(dev->limits.rows == 0 && limits->rows > 0 && limits->width > 0 && limits->head_size > 0);
	dev->limits = *limits;
	return dev->backend->reserve(dev, limits, e);
}

void dev_set_timeout(struct device *dev, double seconds)
{
	dev->timeout = seconds;
}

const char *dev_name(const struct device *dev)
{
	return dev->text;
}

int dev_threads(const struct device *dev)
{
	return dev->threads;
}

double dev_peak_flops(const struct device *dev, enum dtype compute)
{
	return dev->backend->peak_flops(dev, compute);
}

size_t dev_workspace(const struct device *dev)
{
	return dev->workspace;
}

size_t dev_room(const struct device *dev)
{
	return dev->room;
}

bool dev_take(struct device *dev, void **out, size_t bytes, struct error *e)
{
	*out = dev->backend->take(dev, bytes ? bytes : 1);
	if (*out)
		return true;
	return error_set(e, CODE_MACHINE, "%s: cannot have %zu bytes of memory", dev->text, bytes);
}

void dev_give_back(struct device *dev, void *memory)
{
	if (memory)
		dev->backend->give_back(dev, memory);
}

bool dev_rehearse(struct device *dev, bool on)
{
	return dev->backend->rehearse(dev, on);
}

void dev_choose(struct device *dev, struct tuning *own, bool timed)
{
	dev->backend->choose(dev, own, timed);
}

void dev_told(struct device *dev, const struct tuning *choices)
{
	dev->backend->told(dev, choices);
}

struct mark dev_mark(struct device *dev, enum queue q)
{
	return dev->backend->mark(dev, q);
}

void dev_wait(struct device *dev, enum queue q, struct mark m)
{
	if (q != m.queue)
		dev->backend->wait(dev, q, m);
}

void dev_finish(struct device *dev, struct mark m)
{
	dev->backend->finish(dev, m);
}

bool dev_computes(const struct device *dev)
{
	return !dev->backend->counts;
}

void dev_write(struct device *dev, enum queue q, struct tensor to, const void *from_host)
{
	check(to.data && (from_host || !dev_computes(dev)));
	dev->backend->write(dev, q, to.data, from_host, tensor_bytes(to));
}

void dev_read(struct device *dev, enum queue q, void *to_host, struct tensor from)
{
	check(from.data && to_host);
	dev->backend->read(dev, q, to_host, from.data, tensor_bytes(from));
}

void dev_copy(struct device *dev, enum queue q, struct tensor to, struct tensor from)
{
	check(to.data && from.data && to.dtype == from.dtype && tensor_count(to) == tensor_count(from));
	dev->backend->copy(dev, q, to.data, from.data, tensor_bytes(to));
}

void dev_zero(struct device *dev, enum queue q, struct tensor t)
{
	check(t.data);
	dev->backend->zero(dev, q, t.data, tensor_bytes(t));
}

bool dev_begin(struct device *dev, const struct stretch *s)
{
	return dev->backend->begin(dev, s);
}

void dev_end(struct device *dev)
{
	dev->backend->end(dev);
}

bool dev_begin_always(struct device *dev, const struct stretch *s)
{
	return true;
}

void dev_end_nothing(struct device *dev)
{
}

void dev_again(struct device *dev, bool again)
{
	dev->again = again;
}

struct scalars *dev_scalars(struct device *dev)
{
	return dev->scalars;
}

void dev_write_scalars(struct device *dev, enum queue q, const struct scalars *from_host)
{
	dev->backend->write(dev, q, dev->scalars, from_host, sizeof *from_host);
}

void dev_read_scalars(struct device *dev, enum queue q, struct scalars *to_host)
{
	dev->backend->read(dev, q, to_host, dev->scalars, sizeof *to_host);
}

void dev_post(struct device *dev, enum queue q, struct work *w)
{
	check(w->advance && w->call && w->group);
	dev->backend->post(dev, q, w);
}

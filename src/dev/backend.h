/* backend.h: what a kind of device must give; the other side of device.h and ops.h.
 *
 * A backend is a table of functions and a table of ops. All entries are mandatory; dev_open refuses a table with a
 * hole. device.c and ops.c are the thin layer between: they check every call and pass it on, so an implementer may rely
 * on shapes, types and limits as the book of ops states them.
 *
 * Used by implementers (cpu/, cost/, cuda/) and by transports, never by the model. */
#ifndef MTRAIN_DEV_BACKEND_H
#define MTRAIN_DEV_BACKEND_H

#include "dev/device.h"
#include "dev/ops.h"

#define OP_ENTRY(name) void (*name)(struct device * dev, const struct op_##name *a);
struct ops {
	OPS(OP_ENTRY)
};
#undef OP_ENTRY

/* One item that a transport has put on a queue: `advance` pushes it forward without blocking and says whether it is
 * done. Queued work advances in order within its queue. The transport owns the struct until it is done. */
struct work {
	bool (*advance)(struct work *w);
	const char *call;  /* "all-reduce", for time-outs */
	const char *group; /* "tensor" */
	struct work *next; /* the queue's link */
};

struct backend {
	const char *name;
	/* Device memory is not the host's: what goes from host to host is copied through memory of take_host. */
	bool apart;
	bool counts; /* nothing is computed or kept, only counted */
	bool graphs; /* device.graphs has an effect */
	/* Fails: CODE_MACHINE. Sets dev->impl, dev->ops, dev->scalars, dev->text, dev->threads. */
	bool (*open)(struct device *dev, const struct dev_options *options, struct error *e);
	/* Takes the ops' workspace and sets dev->workspace. Fails: CODE_MACHINE. */
	bool (*reserve)(struct device *dev, const struct dev_limits *limits, struct error *e);
	void (*close)(struct device *dev);
	void *(*take)(struct device *dev, size_t bytes); /* zeroed; NULL: not to be had */
	void (*give_back)(struct device *dev, void *memory);
	/* Host memory that queued copies read and write without holding the host; NULL: not to be had. */
	void *(*take_host)(struct device *dev, size_t bytes);
	void (*give_back_host)(struct device *dev, void *memory);
	double (*peak_flops)(const struct device *dev, enum dtype compute);
	struct mark (*mark)(struct device *dev, enum queue q);
	void (*wait)(struct device *dev, enum queue q, struct mark m);
	void (*finish)(struct device *dev, struct mark m);
	void (*write)(struct device *dev, enum queue q, void *to, const void *from, size_t bytes);
	void (*read)(struct device *dev, enum queue q, void *to, const void *from, size_t bytes);
	void (*copy)(struct device *dev, enum queue q, void *to, const void *from, size_t bytes);
	void (*zero)(struct device *dev, enum queue q, void *to, size_t bytes);
	bool (*begin)(struct device *dev, const struct stretch *s); /* of a device that computes: dev_begin_always */
	void (*end)(struct device *dev);                            /* dev_end_nothing */
	void (*post)(struct device *dev, enum queue q, struct work *w); /* transports: queue an item */
	/* dev_rehearse, dev_choose, dev_told. */
	bool (*rehearse)(struct device *dev, bool on);
	void (*choose)(struct device *dev, struct tuning *own, bool timed);
	void (*told)(struct device *dev, const struct tuning *choices);
};

struct device {
	const struct backend *backend;
	const struct ops *ops;
	struct scalars *scalars;
	struct dev_limits limits;
	double timeout;
	size_t workspace;
	size_t room; /* bytes that were free when it was opened; 0: not known */
	int threads;
	bool again; /* dev_again */
	char text[96];
	char identity[96]; /* equal on two ranks where they share one piece of hardware; "": it means nothing */
	void *impl;
	/* While the host waits for the device, now and then: a transport looks after its own work and dies when it is broken,
	 * or, when the wait is `late`, with the call that does not end, if one of its own. NULL: none. */
	void (*watch)(struct device *dev, bool late);
	void *watched;
};

bool dev_begin_always(struct device *dev, const struct stretch *s);
void dev_end_nothing(struct device *dev);

/* For transports whose work is driven from the host: queues w on q. */
void dev_post(struct device *dev, enum queue q, struct work *w);

#endif

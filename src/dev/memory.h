/* memory.h: the arenas of a rank, by kind: measured by a dry run of the build code, then taken from the device at once.
 *
 * Use: memory_measure; build everything; memory_open; build everything again. The second build gets the same bytes
 * in the same order. The sizes are what the start-up summary prints.
 *
 * Owns the device memory behind the arenas. Used by model and train. */
#ifndef MTRAIN_DEV_MEMORY_H
#define MTRAIN_DEV_MEMORY_H

#include "base/arena.h"
#include "dev/device.h"

enum memory_kind {
	MEMORY_WEIGHTS,       /* in the compute type */
	MEMORY_GRADIENTS,     /* main gradients */
	MEMORY_OPTIMIZER,     /* master weights and moments */
	MEMORY_ACTIVATIONS,   /* kept from forward to backward */
	MEMORY_SCRATCH,       /* dead after the op sequence that wrote it */
	MEMORY_COMMUNICATION, /* what is sent or received, reduction vectors */
	MEMORY_TABLES,        /* filled at the start, then only read */
	MEMORY_KINDS
};

const char *memory_name(enum memory_kind kind);

struct memory {
	struct arena arena[MEMORY_KINDS];
	struct device *dev; /* NULL while measuring */
};

/* Starts measuring. */
void memory_measure(struct memory *m);

/* Takes what was measured. Fails: CODE_MACHINE, listing the bytes by kind. */
bool memory_open(struct memory *m, struct device *dev, struct error *e);
void memory_close(struct memory *m);

size_t memory_bytes(const struct memory *m); /* all kinds */

/* Bytes of the kinds that have any: "weights 1.2 GiB, gradients 2.4 GiB, …". Returns buf. */
enum { MEMORY_LIST = 384 };
char *memory_list(char buf[MEMORY_LIST], const struct memory *m);

/* One tensor over all that the arena has handed out, in elements of `dtype`: the arena's padding included. */
struct tensor memory_whole(const struct memory *m, enum memory_kind kind, enum dtype dtype);

#endif

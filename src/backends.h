/* backends.h: what this build has: devices, transports, launchers.
 *
 * backends.c is the only file with #if HAVE_…; everything else asks these lists. */
#ifndef MTRAIN_BACKENDS_H
#define MTRAIN_BACKENDS_H

#include "comm/launch.h"
#include "comm/transport.h"
#include "dev/backend.h"

extern const struct backend *const backends[];    /* NULL-ended, the preferred one first */
extern const struct launcher *const launchers[];  /* NULL-ended, in the order they are tried */

/* The transport for a job on this kind of device, or NULL with the cause: NCCL where every rank has a card of its own, MPI
 * otherwise. Collective over the job where the device is a card. Fails: CODE_USAGE, CODE_MACHINE. */
const struct transport *backends_transport(const struct device *dev, const struct launch *launch, struct error *e);

#endif

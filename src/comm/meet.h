/* meet.h: how ranks exchange a few bytes by TCP when the launcher carries none.
 *
 * Rank 0 waits at a place that all ranks can name; the others come, hand in their bytes, and get everybody's. Each call
 * makes its connections anew and closes them. A token keeps jobs apart that chose the same port on one machine.
 *
 * Used by launch_environment.c. */
#ifndef MTRAIN_COMM_MEET_H
#define MTRAIN_COMM_MEET_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { MEET_HOST = 256 };

struct meet_place {
	char host[MEET_HOST]; /* a name or an address */
	uint16_t port;
	uint64_t token;
};

/* out [size·bytes]: every rank's bytes in rank order. Collective. Fails: CODE_MACHINE: the host has no address, the port is
 * taken; CODE_PEER: not all were there in `seconds` (0: no limit). */
bool meet_gather(const struct meet_place *place, int rank, int size, void *out, const void *in, size_t bytes, double seconds,
		 struct error *e);

#endif

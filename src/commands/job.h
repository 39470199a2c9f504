/* job.h: what every rank has before settings are judged, so that all ranks can stop with one cause: rank and size, a
 * device, the world.
 *
 * Used by commands that run on ranks. */
#ifndef MTRAIN_COMMANDS_JOB_H
#define MTRAIN_COMMANDS_JOB_H

#include "comm/comm.h"
#include "comm/launch.h"
#include "train/settings.h"

struct job {
	struct launch launch;
	struct device *dev;
	struct comm *world;
};

/* Opens device and world: the backend that the settings name, or with "auto" the first that opens; threads 0: the cores of
 * this process, shared with the ranks beside it. Needs: launch_init. Collective. Fails: CODE_USAGE, CODE_MACHINE. */
bool job_open(struct job *j, const struct device_settings *device, const struct launch_settings *launch, struct error *e);

/* A clean end, together. */
void job_close(struct job *j);

#endif

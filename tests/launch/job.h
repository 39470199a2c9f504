/* job.h: one rank of a test job: launched, with a device, a world and the control thread. */
#ifndef MTRAIN_TESTS_LAUNCH_JOB_H
#define MTRAIN_TESTS_LAUNCH_JOB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/launch.h"

struct job {
	struct launch launch;
	struct device *dev;
	struct comm *world;
};

/* As main does it: an error that every rank has alike is told by rank 0. */
static inline void job_must(bool good, const struct error *e)
{
	if (good)
		return;
	if (log_rank() == 0)
		log_cause(e->text);
	exit(e->code);
}

static inline void job_launch(struct job *j, double timeout)
{
	struct error e = {0};
	struct dev_options options = {
		.threads = 1,
		.timeout = timeout,
	};
	job_must(launch_init(&j->launch, launchers, &e), &e);
	options.local_rank = j->launch.local_rank;
	bool opened = false;
	for (int i = 0; backends[i] && !opened; i++)
		opened = dev_open(&j->dev, backends[i], &options, &e);
	job_must(opened, &e);
}

static inline void job_open(struct job *j)
{
	struct error e = {0};
	const struct transport *t = backends_transport(j->dev, &j->launch, &e);
	job_must(t, &e);
	job_must(comm_open(&j->world, t, j->dev, j->launch.rank, j->launch.size, &e), &e);
}

static inline void job_close(struct job *j)
{
	comm_close(j->world);
	dev_close(j->dev);
	launch_finish();
}

#endif

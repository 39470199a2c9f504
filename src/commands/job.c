#include "commands/job.h"

#include <sched.h>
#include <string.h>

#include "backends.h"
#include "base/log.h"

static int threads_each(const struct launch *l)
{
	cpu_set_t set;
	int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	/* A launcher that binds its ranks has shared the cores out already. */
	int shared = cores >= l->local_size ? cores / l->local_size : 1;
	return shared > 0 ? shared : 1;
}

static bool open_device(struct job *j, const struct device_settings *s, double timeout, struct error *e)
{
	bool automatic = strcmp(s->backend, "auto") == 0;
	struct dev_options options = {
		.threads = s->threads > 0 ? (int)s->threads : threads_each(&j->launch), .timeout = timeout,
		.local_rank = j->launch.local_rank,
	};
	for (int i = 0; backends[i]; i++) {
		if (!automatic && strcmp(s->backend, backends[i]->name) != 0)
			continue;
		if (dev_open(&j->dev, backends[i], &options, e)) {
			if (e->code)
				log_info("device.backend = auto: %s, since %s", backends[i]->name, e->text);
			*e = (struct error){0};
			return true;
		}
		if (!automatic)
			return false;
	}
	return e->code ? false : error_set(e, CODE_USAGE, "device.backend = %s: this build has no such backend", s->backend);
}

bool job_open(struct job *j, const struct device_settings *device, double timeout, struct error *e)
{
	*e = (struct error){0};
	if (!open_device(j, device, timeout, e))
		return false;
	const struct transport *t = backends_transport(j->dev, &j->launch, e);
	return t && comm_open(&j->world, t, j->dev, j->launch.rank, j->launch.size, e);
}

void job_close(struct job *j)
{
	comm_close(j->world);
	dev_close(j->dev);
	launch_finish();
}

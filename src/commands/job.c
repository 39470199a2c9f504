#include "commands/job.h"

#include <sched.h>
#include <stdlib.h>
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
		.threads = s->threads > 0 ? (int)s->threads : threads_each(&j->launch), .timeout = timeout, .graphs = s->graphs,
		.local_rank = j->launch.local_rank, .local_size = j->launch.local_size,
	};
	for (int i = 0; backends[i]; i++) {
		if (!automatic && strcmp(s->backend, backends[i]->name) != 0)
			continue;
		if (dev_open(&j->dev, backends[i], &options, e)) {
			if (e->code)
				log_info("device.backend = auto: %s, since %s", backends[i]->name, e->text);
			if (s->graphs && !backends[i]->graphs && log_rank() == 0)
				log_warn("device.graphs = true has no effect, since the device is %s", backends[i]->name);
			*e = (struct error){0};
			return true;
		}
		if (!automatic)
			return false;
	}
	return e->code ? false : error_set(e, CODE_USAGE, "device.backend = %s: this build has no such backend", s->backend);
}

/* NCCL reads its choices from the environment. A tree is for sums over all ranks only. */
static void pin(const struct launch_settings *s, const struct transport *t)
{
	static const char *const values[][2] = {
		{"ring", "Ring"}, {"tree", "allreduce:Tree"}, {"simple", "Simple"}, {"ll", "LL"}, {"ll128", "LL128"},
	};
	const struct {
		const char *key, *variable, *value;
	} pins[] = {{"nccl_algorithm", "NCCL_ALGO", s->nccl_algorithm}, {"nccl_protocol", "NCCL_PROTO", s->nccl_protocol}};
	for (int i = 0; i < 2; i++) {
		if (strcmp(pins[i].value, "auto") == 0)
			continue;
		if (strcmp(t->name, "nccl") != 0 && log_rank() == 0)
			log_warn("launch.%s = %s has no effect, since the ranks talk over %s", pins[i].key, pins[i].value, t->name);
		for (size_t v = 0; v < sizeof values / sizeof *values; v++)
			if (strcmp(values[v][0], pins[i].value) == 0)
				setenv(pins[i].variable, values[v][1], true);
	}
}

bool job_open(struct job *j, const struct device_settings *device, const struct launch_settings *launch, struct error *e)
{
	*e = (struct error){0};
	if (!open_device(j, device, launch->init_timeout, e))
		return false;
	const struct transport *t = backends_transport(j->dev, &j->launch, e);
	if (!t)
		return false;
	pin(launch, t);
	return comm_open(&j->world, t, j->dev, j->launch.rank, j->launch.size, e);
}

void job_close(struct job *j)
{
	comm_close(j->world);
	dev_close(j->dev);
	launch_finish();
}

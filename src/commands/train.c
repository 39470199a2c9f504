#include <stddef.h>
#include <stdlib.h>

#include "backends.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/control.h"
#include "commands/commands.h"
#include "commands/job.h"
#include "commands/options.h"
#include "train/train.h"

struct values {
	const char *config;
	struct option_list set;
};

static const struct option_row rows[] = {
	{"config", "FILE", OPTION_TEXT, offsetof(struct values, config), true, NULL, "the INI file with the run's settings"},
	{"set", "section.key=value", OPTION_LIST, offsetof(struct values, set), false, NULL,
	 "a setting that wins over the file; may be given often"},
};

static const struct options options = {
	.usage = "mtrain --config FILE [--set section.key=value]...",
	.summary = "Trains. A run whose run.dir has checkpoints goes on from the newest that is valid.",
	.rows = rows,
	.count = sizeof rows / sizeof *rows,
};

/* With settings that cannot be read the job still comes up, on defaults, to say so with one voice. */
static const struct device_settings any_device = {.backend = "auto"};
static const struct launch_settings any_launch = {.init_timeout = 300, .nccl_algorithm = "auto", .nccl_protocol = "auto"};

/* Every layer's sums are over a tensor group. Collective. */
static void tell_spread(const struct job *j, struct comm *tensor)
{
	int ranks = comm_size(tensor), *node = calloc((size_t)ranks, sizeof *node), groups = 0;
	char spread = false, *all = calloc((size_t)comm_size(j->world), sizeof *all);
	check(node && all);
	comm_host_gather(tensor, node, &j->launch.node, sizeof *node);
	for (int i = 1; i < ranks; i++)
		spread = spread || node[i] != node[0];
	comm_host_gather(j->world, all, &spread, sizeof spread);
	for (int i = 0; i < comm_size(j->world); i++)
		groups += all[i];
	if (groups > 0 && log_rank() == 0)
		log_warn("parallel.tensor = %d: of %d of %d groups the ranks that share a layer are not on one node, so that every layer waits "
			 "for the network; ranks that follow each other belong on a node (srun --distribution=block, mpirun --map-by slot)",
			 ranks, groups / ranks, comm_size(j->world) / ranks);
	free(all);
	free(node);
}

static int train(struct job *j, struct config *c, double begin, struct error *e)
{
	struct train t;
	int code = CODE_DONE;

	if (!train_open(&t, c, j->dev, j->world, begin, "mtrain", e)) {
		code = e->code;
	} else {
		tell_spread(j, t.run.groups.tensor);
		code = train_loop(&t, e);
	}
	metrics_end(t.metrics, t.scalars.step, code);
	train_close(&t);
	return code;
}

int command_train(int argc, char **argv, struct error *e)
{
	double begin = clock_now();
	struct values v = {0};
	struct job job = {0};
	struct config c = {0};
	struct error bad = {0};
	bool helped;

	if (!options_read(&options, &v, argc, argv, NULL, NULL, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	control_catch_signals();
	if (!launch_init(&job.launch, launchers, e))
		return e->code;
	bool good = config_load(&c, v.config, v.set.texts, v.set.count, &bad);
	if (!job_open(&job, good ? &c.device : &any_device, good ? &c.launch : &any_launch, e) ||
	    !control_init(job.world, e))
		return e->code;
	int code = comm_agree(job.world, &bad) ? train(&job, &c, begin, e) : bad.code;
	if (bad.code)
		*e = bad;
	log_phase(NULL);
	log_speaks(job.launch.rank == 0); /* all ranks have the same cause */
	config_finish(&c);
	control_finish();
	job_close(&job);
	return code;
}

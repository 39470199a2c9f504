#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "commands/commands.h"
#include "commands/job.h"
#include "commands/options.h"
#include "plan/calibrate.h"
#include "plan/plan_report.h"

struct values {
	const char *output, *backend;
	int64_t threads;
	bool json;
};

static const struct option_row rows[] = {
	{"output", "FILE", OPTION_TEXT, offsetof(struct values, output), true, NULL, "the hardware file to write, for `mtrain plan`"},
	{"backend", "NAME", OPTION_TEXT, offsetof(struct values, backend), false, NULL, "what computes, as device.backend (auto)"},
	{"threads", "N", OPTION_COUNT, offsetof(struct values, threads), false, "[1, 4096]", "of each rank, as device.threads"},
	{"json", NULL, OPTION_FLAG, offsetof(struct values, json), false, NULL, "print the numbers as JSON too"},
};

static const struct options options = {
	.usage = "mtrain calibrate --output FILE [--backend NAME] [--threads N] [--json]",
	.summary = "Measures this machine, or under mpirun or srun this job's machines and links, for `mtrain plan`.",
	.rows = rows,
	.count = sizeof rows / sizeof *rows,
};

enum { TIMEOUT = 300 };

static bool write_file(const struct hardware *h, const char *path, struct error *e)
{
	char *text;
	size_t bytes;
	FILE *f = open_memstream(&text, &bytes);
	check(f);
	hardware_write(h, f);
	fclose(f);
	bool good = file_replace(path, text, bytes, CODE_USAGE, e);
	free(text);
	return good;
}

static bool run(struct job *j, const struct values *v, struct error *e)
{
	struct hardware *h = calloc(1, sizeof *h);
	char folder[PATH_ROOM];
	const char *slash = strrchr(v->output, '/');
	struct error bad = {0};

	check(h);
	snprintf(folder, sizeof folder, "%.*s", slash > v->output ? (int)(slash - v->output) : 1, slash ? v->output : ".");
	/* Before minutes of measuring, not behind them. */
	struct stat now;
	bool is_folder = *v->output == '\0' || (stat(v->output, &now) == 0 && S_ISDIR(now.st_mode));
	if (j->launch.rank == 0 && is_folder)
		error_set(&bad, CODE_USAGE, "--output '%s': must be the name of a file", v->output);
	else if (j->launch.rank == 0 && access(folder, W_OK) != 0)
		error_set(&bad, CODE_USAGE, "--output %s: %s: %s", v->output, folder, strerror(errno));
	bool good = comm_agree(j->world, &bad) && calibrate(h, &(struct calibrate_options){
		.dev = j->dev, .world = j->world, .node = j->launch.node, .folder = folder,
	}, e);
	if (good && j->launch.rank == 0)
		write_file(h, v->output, &bad);
	good = good && comm_agree(j->world, &bad);
	if (bad.code)
		*e = bad;
	if (good && v->json && j->launch.rank == 0)
		json_print(plan_report_constants(h), true);
	free(h);
	return good;
}

int command_calibrate(int argc, char **argv, struct error *e)
{
	struct values v = {.backend = "auto"};
	struct job job = {0};
	bool helped;

	if (!options_read(&options, &v, argc, argv, NULL, NULL, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	if (!launch_init(&job.launch, launchers, e))
		return e->code;
	struct device_settings device = {.backend = v.backend, .threads = v.threads};
	if (!job_open(&job, &device, &(struct launch_settings){.init_timeout = TIMEOUT, .step_timeout = TIMEOUT,
		      .nccl_algorithm = "auto", .nccl_protocol = "auto"}, e))
		return e->code;
	bool good = run(&job, &v, e);
	log_speaks(job.launch.rank == 0);
	job_close(&job);
	return good ? CODE_DONE : e->code;
}

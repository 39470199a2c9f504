/* A job that gets into trouble on purpose: trouble MODE RANK. Every rank first prints "rank R is process P". */
#include <signal.h>

#include "comm/control.h"
#include "dev/backend.h"
#include "job.h"

static void sums(struct job *j, int rounds)
{
	enum { COUNT = 100000 };
	static float data[COUNT];
	while (rounds-- > 0) {
		comm_all_reduce(j->world, Q_TENSOR, tensor_1d(data, F32, COUNT));
		dev_finish(j->dev, dev_mark(j->dev, Q_TENSOR));
	}
}

/* As a training loop does it: the request is spread by a reduction, all stop after the same round. */
static int sums_until_stopped(struct job *j)
{
	for (;;) {
		float stop = control_stop_requested();
		sums(j, 1);
		comm_all_reduce(j->world, Q_DATA, tensor_1d(&stop, F32, 1));
		dev_finish(j->dev, dev_mark(j->dev, Q_DATA));
		if (stop > 0)
			break;
	}
	int signal = control_stop_signal(), *all = malloc((size_t)j->launch.size * sizeof *all);
	comm_host_gather(j->world, all, &signal, sizeof signal);
	for (int r = 0; r < j->launch.size; r++)
		if (all[r])
			log_info("rank %d was asked to stop by signal %d", r, all[r]);
	free(all);
	return CODE_STOPPED;
}

int main(int argc, char **argv)
{
	struct job j;
	struct error e = {0};
	int code = 0;
	if (argc != 3)
		return CODE_USAGE;
	const char *mode = argv[1];
	log_phase("start");
	control_catch_signals();
	/* What is to run out is 4 s; what is not has time, since machines that test are busy. */
	bool silence = strcmp(mode, "freeze") == 0 || strcmp(mode, "suspend") == 0;
	bool limit = strcmp(mode, "hang") == 0 || strcmp(mode, "unfinished") == 0;
	job_launch(&j, strcmp(mode, "absent") == 0 ? 4 : 60);
	bool here = j.launch.rank == atoi(argv[2]);
	printf("rank %d is process %d\n", j.launch.rank, (int)getpid());
	fflush(stdout);
	if (strcmp(mode, "absent") == 0 && here)
		pause();
	if (strcmp(mode, "late") == 0 && here)
		sleep(2);
	job_open(&j);
	j.dev->timeout = silence ? 4 : 60;
	job_must(control_init(j.world, &e), &e);
	j.dev->timeout = 60;
	log_phase("sums");
	sums(&j, 20);
	log_info("running");
	if (limit)
		j.dev->timeout = 4;
	if (strcmp(mode, "loop") == 0 || strcmp(mode, "late") == 0 || strcmp(mode, "suspend") == 0) {
		code = sums_until_stopped(&j);
	} else if (strcmp(mode, "die") == 0 && here) {
		die(CODE_DATA, "a bad day");
	} else if (strcmp(mode, "die-all") == 0) {
		die(CODE_DATA, "a bad day for all");
	} else if (strcmp(mode, "leave") == 0 && here) {
		_exit(0);
	} else if (strcmp(mode, "hang") == 0 && here) {
		sleep(60);
	} else if (strcmp(mode, "freeze") == 0 && here) {
		raise(SIGSTOP);
	} else if (strcmp(mode, "unfinished") == 0 && here) {
		sleep(60);
	}
	if (strcmp(mode, "unfinished") != 0)
		sums(&j, 20);
	control_finish();
	job_close(&j);
	return code;
}

#include "train/initial.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

enum { THREADS_MOST = 64, LEAST = 1 << 14 }; /* values for which a thread is worth its start */

struct work {
	const struct param *param;
	uint64_t seed;
	int64_t begin, count;
	float *out;
	pthread_t thread;
	bool started;
};

int initial_threads(const struct device *dev)
{
	cpu_set_t set;
	if (dev_threads(dev) > 0)
		return dev_threads(dev);
	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void *make(void *context)
{
	struct work *w = context;
	param_initial(w->param, w->seed, w->begin, w->count, w->out);
	return NULL;
}

void initial_values(const struct param *p, uint64_t seed, int64_t begin, int64_t count, float *out, int threads)
{
	struct work works[THREADS_MOST];
	sigset_t all, before;
	int64_t most = count / LEAST + 1;
	int n = threads < THREADS_MOST ? threads : THREADS_MOST;
	n = n < most ? n : (int)most;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the thread that trains */
	for (int i = 0; i < n; i++) {
		int64_t first = count * i / n, end = count * (i + 1) / n;
		works[i] = (struct work){.param = p, .seed = seed, .begin = begin + first, .count = end - first, .out = out + first};
		works[i].started = i < n - 1 && pthread_create(&works[i].thread, NULL, make, &works[i]) == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (int i = 0; i < n; i++)
		if (!works[i].started)
			make(&works[i]);
	for (int i = 0; i < n; i++)
		if (works[i].started)
			pthread_join(works[i].thread, NULL);
}

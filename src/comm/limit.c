#include "comm/limit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool running, over;
static const char *call_name, *group_name;
static double limit_seconds;

static void *stand_by(void *context)
{
	struct timespec until;
	int rank = log_rank();
	double wait = limit_seconds + (3.0 * (rank < 8 ? rank : 8));
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)wait;
	until.tv_nsec += (long)((wait - (double)(time_t)wait) * 1e9);
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&lock);
	while (!over)
		if (pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT && !over)
			die(CODE_PEER, "%s in group %s: not all ranks joined in %g s", call_name, group_name, limit_seconds);
	pthread_mutex_unlock(&lock);
	return NULL;
}

void limit_begin(const char *call, const char *group, double seconds)
{
	sigset_t all, before;
	check(!running);
	if (seconds <= 0)
		return;
	call_name = call;
	group_name = group;
	limit_seconds = seconds;
	over = false;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the thread that trains */
	int failed = pthread_create(&thread, NULL, stand_by, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		die(CODE_MACHINE, "cannot start a thread: %s", strerror(failed));
	running = true;
}

void limit_end(void)
{
	if (!running)
		return;
	pthread_mutex_lock(&lock);
	over = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	running = false;
}

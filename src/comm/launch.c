#include "comm/launch.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"

/* Seconds that a launcher may take to answer when it is asked to end the job. */
enum { ABORT_LIMIT = 3 };

static const struct launcher *current;
static volatile sig_atomic_t abort_code;

bool launch_init(struct launch *l, const struct launcher *const *list, struct error *e)
{
	for (; *list; list++) {
		*l = (struct launch){.local_size = 1, .launcher = (*list)->name};
		e->code = 0;
		if ((*list)->detect(l, e))
			break;
		if (e->code)
			return false;
	}
	check(*list);
	if (l->size < 1 || l->rank < 0 || l->rank >= l->size)
		return error_set(e, CODE_USAGE, "%s: says this is rank %d of %d", l->launcher, l->rank, l->size);
	current = *list;
	log_identity(l->rank, l->size);
	die_set_hook(launch_abort);
	return true;
}

void launch_finish(void)
{
	if (!current)
		return;
	die_set_hook(NULL);
	current->finish();
	current = NULL;
}

static void abort_too_slow(int signal)
{
	_exit(abort_code);
}

void launch_abort(int code, const char *cause)
{
	struct sigaction slow = {.sa_handler = abort_too_slow};
	sigset_t alarm_only;
	if (!current)
		return;
	abort_code = code;
	sigaction(SIGALRM, &slow, NULL);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
	alarm(ABORT_LIMIT);
	current->abort(code, cause);
	alarm(0);
}

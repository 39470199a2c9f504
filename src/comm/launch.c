#include "comm/launch.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"

/* Seconds that a launcher may take to answer when it is asked to end the job. */
enum { ABORT_LIMIT = 3 };

static const struct launcher *current;
static struct launch job;
static void (*leaving)(void);
static volatile sig_atomic_t abort_code;

/* For launchers that do not number the nodes. */
static int node_by_name(void)
{
	char name[256] = "";
	gethostname(name, sizeof name - 1);
	return (int)(XXH3_64bits(name, strlen(name)) & INT_MAX);
}

bool launch_init(struct launch *l, const struct launcher *const *list, struct error *e)
{
	for (; *list; list++) {
		*l = (struct launch){.local_size = 1, .node = node_by_name(), .launcher = (*list)->name};
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
	job = *l;
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

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void abort_too_slow(int signal)
{
	_exit(abort_code);
}

/* From here to alarm(0) so many seconds may pass, or the process ends with the code. */
static void within(int seconds, int code)
{
	struct sigaction slow = {.sa_handler = abort_too_slow};
	sigset_t alarm_only;
	abort_code = code;
	sigaction(SIGALRM, &slow, NULL);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
	alarm((unsigned)seconds);
}

void launch_set_leaving(void (*f)(void))
{
	__atomic_store_n(&leaving, f, __ATOMIC_SEQ_CST);
}

void launch_leave(int code)
{
	void (*f)(void) = __atomic_exchange_n(&leaving, NULL, __ATOMIC_SEQ_CST); /* once, by whoever comes first */
	if (!f)
		return;
	within(ABORT_LIMIT, code);
	f();
	alarm(0);
}

void launch_abort(int code, const char *cause)
{
	if (!current)
		return;
	launch_leave(code);
	within(ABORT_LIMIT, code);
	current->abort(code, cause);
	alarm(0);
}

bool launch_gather(void *out, const void *in, size_t bytes, double seconds, struct error *e)
{
	check(current);
	if (job.size == 1) {
		memcpy(out, in, bytes);
		return true;
	}
	return current->gather(&job, out, in, bytes, seconds, e);
}

bool launch_all_differ(bool *differ, const char text[LAUNCH_TEXT], double seconds, struct error *e)
{
	char(*all)[LAUNCH_TEXT] = calloc((size_t)job.size, sizeof *all);
	check(all);
	if (!launch_gather(all, text, LAUNCH_TEXT, seconds, e)) {
		free(all);
		return false;
	}
	qsort(all, (size_t)job.size, sizeof *all, by_text);
	*differ = true;
	for (int i = 1; i < job.size; i++)
		*differ = *differ && strcmp(all[i - 1], all[i]) != 0;
	free(all);
	return true;
}

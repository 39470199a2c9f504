#include "comm/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static atomic_bool requested, term_held, hold_term;
static atomic_int first_signal, wake_fd = -1;

void stop_request(int signal)
{
	int none = 0;
	atomic_compare_exchange_strong(&first_signal, &none, signal);
	atomic_store(&requested, true);
}

static void on_signal(int signal)
{
	int saved = errno, fd = atomic_load(&wake_fd);
	if (signal == SIGTERM && atomic_load(&hold_term))
		atomic_store(&term_held, true);
	else
		stop_request(signal);
	if (fd >= 0) {
		ssize_t ignored = write(fd, "", 1);
		(void)ignored;
	}
	errno = saved;
}

void stop_catch(void)
{
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	atomic_store(&hold_term, true);
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	a.sa_flags |= (int)SA_RESETHAND; /* the second SIGINT ends at once */
	sigaction(SIGINT, &a, NULL);
	signal(SIGPIPE, SIG_IGN); /* a run goes on when nobody reads its console any more */
}

bool stop_requested(void)
{
	return atomic_load(&requested);
}

int stop_signal(void)
{
	return atomic_load(&first_signal);
}

bool stop_term_held(void)
{
	return atomic_load(&term_held);
}

void stop_term_counts(bool hold_back)
{
	atomic_store(&hold_term, hold_back);
	if (atomic_exchange(&term_held, false))
		stop_request(SIGTERM);
}

void stop_wake(int fd)
{
	atomic_store(&wake_fd, fd);
}

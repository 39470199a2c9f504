#include "comm/control.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/launch.h"
#include "comm/stop.h"
#include "comm/transport.h"
#include "comm/watch.h"

static const double
	CONNECT_TIME = 60, /* for the star, where the device has no time-out */
	ASK_LIMIT = 5,     /* for the thread to answer a rank that dies */
	SILENT_TIME = 5;   /* in which the thread ends a process that may not speak */

static struct watch watch;
static pthread_t thread;
static bool running;

void control_catch_signals(void)
{
	stop_catch();
}

bool control_stop_requested(void)
{
	return stop_requested();
}

void control_request_stop(void)
{
	stop_request(0);
}

int control_stop_signal(void)
{
	return stop_signal();
}

static void wake(void)
{
	ssize_t ignored = write(watch.wake[1], "", 1);
	(void)ignored;
}

static bool may_speak(int *code, const char *cause)
{
	double until = clock_now() + ASK_LIMIT;
	int unasked = VOICE_UNASKED;
	if (pthread_equal(pthread_self(), thread))
		return true;
	atomic_compare_exchange_strong(&watch.voice, &unasked, VOICE_ASKING);
	wake();
	while (atomic_load(&watch.voice) == VOICE_ASKING && clock_now() < until)
		watch_pause(0.002);
	if (atomic_load(&watch.voice) != VOICE_SILENT)
		return true;
	*code = CODE_PEER;
	return false;
}

static void end_job(int code, const char *cause)
{
	if (atomic_load(&watch.voice) == VOICE_SILENT)
		watch_pause(SILENT_TIME);
	else
		launch_abort(code, cause);
}

bool control_init(struct comm *world, struct error *e)
{
	double limit = world->dev->timeout > 0 ? world->dev->timeout : CONNECT_TIME;
	sigset_t all, before;

	stop_catch();
	if (comm_size(world) == 1) {
		stop_term_counts(false); /* no peers that could be lost */
		return true;
	}
	watch = (struct watch){.wake = {-1, -1}};
	if (!star_open(&watch.star, world, limit, e))
		return false;
	watch_init(&watch, world->dev);
	if (pipe2(watch.wake, O_CLOEXEC | O_NONBLOCK) != 0)
		die(CODE_MACHINE, "cannot make a pipe: %s", strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the thread that trains */
	int failed = pthread_create(&thread, NULL, watch_run, &watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		die(CODE_MACHINE, "cannot start a thread: %s", strerror(failed));
	running = true;
	stop_wake(watch.wake[1]);
	wake();
	die_set_voice(may_speak);
	die_set_hook(end_job);
	return true;
}

void control_finish(void)
{
	if (!running)
		return;
	atomic_store(&watch.finishing, true);
	wake();
	pthread_join(thread, NULL);
	running = false;
	die_set_voice(NULL);
	die_set_hook(launch_abort);
	stop_wake(-1);
	stop_term_counts(false);
	close(watch.wake[0]);
	close(watch.wake[1]);
	star_close(&watch.star);
	watch_finish(&watch);
}

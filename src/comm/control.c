#include "comm/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/launch.h"
#include "comm/star.h"
#include "comm/transport.h"

static const double
	SILENCE = 30,       /* seconds without a word after which a peer is lost */
	BEATS = 6,          /* words in that time */
	SIGTERM_WAIT = 0.8, /* before SIGTERM counts: news of a lost peer come in milliseconds */
	ASK_LIMIT = 5,      /* for the thread to answer a rank that dies */
	SPEAK_TIME = 0.5,   /* the others' exit codes should come after the speaker's */
	LINGER = 1.5,       /* a survivor that speaks for rank 0 stays reachable for the others */
	CONNECT_TIME = 60;  /* for the star, where the device has no time-out */

/* Whether the main thread, which is in `die`, may print. */
enum voice { VOICE_UNASKED, VOICE_ASKING, VOICE_SPEAK, VOICE_SILENT };

/* Signals: what the handler leaves for the thread and for control_stop_requested. */
static atomic_bool stop, term_pending, term_waits;
static atomic_int stop_signal, wake_fd = -1;

/* The thread and what it shares with main. */
static struct star star;
static struct device *device;
static pthread_t thread;
static bool running;
static int wake_pipe[2];
static atomic_int voice;
static atomic_bool finishing;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_for(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static void wake(void)
{
	int fd = atomic_load(&wake_fd);
	if (fd >= 0) {
		ssize_t ignored = write(fd, "", 1);
		(void)ignored;
	}
}

static void stop_by(int signal)
{
	int none = 0;
	atomic_compare_exchange_strong(&stop_signal, &none, signal);
	atomic_store(&stop, true);
}

static void on_signal(int signal)
{
	int saved = errno;
	if (signal == SIGTERM && atomic_load(&term_waits)) {
		atomic_store(&term_pending, true);
		wake();
	} else {
		stop_by(signal);
	}
	errno = saved;
}

void control_catch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigaddset(&a.sa_mask, SIGUSR1);
	sigaddset(&a.sa_mask, SIGTERM);
	atomic_store(&term_waits, true);
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	a.sa_flags |= (int)SA_RESETHAND; /* the second one ends at once */
	sigaction(SIGINT, &a, NULL);
}

bool control_stop_requested(void)
{
	return atomic_load(&stop);
}

void control_request_stop(void)
{
	atomic_store(&stop, true);
}

int control_stop_signal(void)
{
	return atomic_load(&stop_signal);
}

/* From here on SIGTERM is a request like the others: there are no peers that could be lost. */
static void stop_waiting_for_news(void)
{
	atomic_store(&term_waits, false);
	if (atomic_exchange(&term_pending, false))
		stop_by(SIGTERM);
}

/* The thread's own ends. It never calls `die`: main may be in there, waiting for an answer. */

static _Noreturn void end_in_silence(double seconds)
{
	log_speaks(false);
	atomic_store(&voice, VOICE_SILENT);
	pause_for(seconds);
	_exit(CODE_PEER);
}

static _Noreturn void end_speaking(double linger, const char *format, ...) __attribute__((format(printf, 2, 3)));

static _Noreturn void end_speaking(double linger, const char *format, ...)
{
	char cause[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(cause, sizeof cause, format, args);
	va_end(args);
	log_cause(cause);
	launch_abort(CODE_PEER, cause);
	pause_for(linger);
	_exit(CODE_PEER);
}

static void say_all(enum star_word word, const struct star_link *except)
{
	for (int i = 0; i < star.count; i++)
		if (&star.links[i] != except)
			star_say(&star, &star.links[i], word);
}

static _Noreturn void lost(const struct star_link *l, const char *how)
{
	const char *host = star.addresses[l->rank].host;
	if (star.rank == 0) {
		say_all(STAR_END, l);
		end_speaking(0, "rank %d was lost (%s; it ran on %s)", l->rank, how, host);
	}
	/* Rank 0 is gone: the lowest rank that can still be reached speaks. If it was only stopped and wakes up later, it
	 * finds on every connection that others have spoken. */
	star_say(&star, &star.links[0], STAR_END);
	for (int r = 1; r < star.rank && r <= 8; r++)
		if (star_reachable(&star, r))
			end_in_silence(2 * LINGER);
	end_speaking(LINGER, "rank 0 was lost (%s; it ran on %s)", how, host);
}

/* What the thread keeps between its rounds. */
struct watch {
	double silence, beat;
	double last_beat, term_since, finish_since;
	double *silent;    /* [links] seconds since the last word, as far as we were awake */
	bool *gone;        /* [links] said goodbye */
	struct pollfd *fds;
	bool said_goodbye, asked;
};

/* A job of which this returns true is over for the thread. */
static bool hear(struct watch *w, int i)
{
	struct star_link *l = &star.links[i];
	for (;;) {
		switch (star_hear(l)) {
		case STAR_NOTHING:
			return false;
		case STAR_CLOSED:
			if (!w->gone[i])
				lost(l, "connection closed");
			return false;
		case STAR_CAUSE:
			star_say(&star, l, STAR_SPEAK);
			say_all(STAR_END, l);
			end_in_silence(SPEAK_TIME);
		case STAR_SPEAK:
			atomic_store(&voice, VOICE_SPEAK);
			return true;
		case STAR_END:
			end_in_silence(SPEAK_TIME);
		case STAR_GOODBYE:
			w->gone[i] = star.rank == 0; /* rank 0 itself is done only when it says so */
			break;
		case STAR_DONE:
			return true;
		case STAR_HELLO:
		case STAR_ALIVE:
			break;
		}
		w->silent[i] = 0;
	}
}

/* Main is dying of a cause of its own. */
static bool answer_main(struct watch *w)
{
	if (w->asked || atomic_load(&voice) != VOICE_ASKING)
		return false;
	w->asked = true;
	if (star.rank != 0) {
		star_say(&star, &star.links[0], STAR_CAUSE);
		return false;
	}
	say_all(STAR_END, NULL);
	atomic_store(&voice, VOICE_SPEAK);
	return true;
}

/* The end of the job: everybody says goodbye to rank 0, which waits for all, itself too, from the first goodbye on. */
static bool try_finish(struct watch *w, double time)
{
	bool self = atomic_load(&finishing);
	char missing[128];
	int left = !self;
	if (self && !w->said_goodbye) {
		w->said_goodbye = true;
		say_all(STAR_GOODBYE, NULL);
	}
	if (star.rank != 0)
		return false;
	for (int i = 0; i < star.count; i++)
		left += !w->gone[i];
	if (left == star.size)
		return false;
	if (left == 0) {
		say_all(STAR_DONE, NULL);
		return true;
	}
	if (w->finish_since <= 0)
		w->finish_since = time;
	if (device->timeout > 0 && time - w->finish_since > device->timeout) {
		star_list(&star, self, w->gone, missing, sizeof missing);
		say_all(STAR_END, NULL);
		end_speaking(0, "waited %g s for rank %s at the end of the job", device->timeout, missing);
	}
	return false;
}

static void look_at_term(struct watch *w, double time)
{
	if (!atomic_load(&term_pending)) {
		w->term_since = 0;
	} else if (w->term_since <= 0) {
		w->term_since = time;
	} else if (time - w->term_since >= SIGTERM_WAIT) {
		atomic_store(&term_pending, false);
		stop_by(SIGTERM);
	}
}

static void *watch(void *context)
{
	struct watch *w = context;
	bool over = false;
	char drained[64];
	w->fds[star.count] = (struct pollfd){.fd = wake_pipe[0], .events = POLLIN};
	w->last_beat = now();
	while (!over) {
		bool busy = atomic_load(&term_pending) || atomic_load(&finishing) || atomic_load(&voice) != VOICE_UNASKED;
		double pause = busy && w->beat > 0.1 ? 0.1 : w->beat, before = now();
		for (int i = 0; i < star.count; i++)
			w->fds[i] = (struct pollfd){.fd = star.links[i].closed ? -1 : star.links[i].fd, .events = POLLIN};
		poll(w->fds, (nfds_t)star.count + 1, (int)(pause * 1000) + 1);
		if (w->fds[star.count].revents)
			while (read(wake_pipe[0], drained, sizeof drained) > 0)
				;

		/* A process that was stopped for a while must not take its own sleep for the others' silence. */
		double time = now(), awake = time - before < 2 * pause ? time - before : 2 * pause;
		for (int i = 0; i < star.count && !over; i++) {
			w->silent[i] += awake;
			over = hear(w, i);
			if (!over && !w->gone[i] && w->silent[i] > w->silence) {
				char how[64];
				snprintf(how, sizeof how, "no sign of life for %g s", w->silence);
				lost(&star.links[i], how);
			}
		}
		if (time - w->last_beat >= w->beat) {
			w->last_beat = time;
			say_all(STAR_ALIVE, NULL);
		}
		over = over || answer_main(w) || try_finish(w, time);
		look_at_term(w, time);
	}
	free(w->silent);
	free(w->gone);
	free(w->fds);
	free(w);
	return NULL;
}

static bool may_speak(int *code, const char *cause)
{
	double until = now() + ASK_LIMIT;
	if (pthread_equal(pthread_self(), thread))
		return true;
	int unasked = VOICE_UNASKED;
	atomic_compare_exchange_strong(&voice, &unasked, VOICE_ASKING);
	wake();
	while (atomic_load(&voice) == VOICE_ASKING && now() < until)
		pause_for(0.002);
	if (atomic_load(&voice) != VOICE_SILENT)
		return true;
	*code = CODE_PEER;
	return false;
}

static void end_job(int code, const char *cause)
{
	if (atomic_load(&voice) == VOICE_SILENT)
		pause_for(2 * LINGER); /* the thread ends the process before */
	else
		launch_abort(code, cause);
}

static struct watch *watch_new(void)
{
	struct watch *w = calloc(1, sizeof *w);
	size_t n = (size_t)star.count;
	if (w) {
		w->silence = device->timeout > 0 && device->timeout < SILENCE ? device->timeout : SILENCE;
		w->beat = w->silence / BEATS;
		w->silent = calloc(n, sizeof *w->silent);
		w->gone = calloc(n, sizeof *w->gone);
		w->fds = calloc(n + 1, sizeof *w->fds);
	}
	if (!w || !w->silent || !w->gone || !w->fds)
		die(CODE_MACHINE, "out of memory");
	return w;
}

bool control_init(struct comm *world, struct error *e)
{
	sigset_t all, before;
	control_catch_signals();
	if (comm_size(world) == 1) {
		stop_waiting_for_news();
		return true;
	}
	device = world->dev;
	if (!star_open(&star, world, device->timeout > 0 ? device->timeout : CONNECT_TIME, e))
		return false;
	if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
		die(CODE_MACHINE, "cannot make a pipe: %s", strerror(errno));
	atomic_store(&voice, VOICE_UNASKED);
	atomic_store(&finishing, false);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the thread that trains */
	int failed = pthread_create(&thread, NULL, watch, watch_new());
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		die(CODE_MACHINE, "cannot start a thread: %s", strerror(failed));
	running = true;
	atomic_store(&wake_fd, wake_pipe[1]);
	wake();
	die_set_voice(may_speak);
	die_set_hook(end_job);
	return true;
}

void control_finish(void)
{
	if (!running)
		return;
	atomic_store(&finishing, true);
	wake();
	pthread_join(thread, NULL);
	running = false;
	die_set_voice(NULL);
	die_set_hook(launch_abort);
	atomic_store(&wake_fd, -1);
	stop_waiting_for_news();
	close(wake_pipe[0]);
	close(wake_pipe[1]);
	star_close(&star);
}

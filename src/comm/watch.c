#include "comm/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/stop.h"
#include "dev/backend.h"

static const double
	SILENCE = 30,       /* the longest that a peer may be silent */
	BEATS = 6,          /* words in that time */
	SIGTERM_WAIT = 0.8, /* before SIGTERM counts: news of a lost peer come in milliseconds */
	SPEAK_TIME = 0.5,   /* the others' exit codes should come after the speaker's */
	LINGER = 1.5,       /* a survivor that speaks for rank 0 stays reachable for the others */
	BUSY = 0.1;         /* between two looks while something is about to happen */
enum { ELECTORS = 8 };      /* lower ranks that are tried when rank 0 is gone */

void watch_pause(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static _Noreturn void end_in_silence(struct watch *w, double seconds)
{
	log_speaks(false);
	atomic_store(&w->voice, VOICE_SILENT);
	launch_leave(CODE_PEER);
	watch_pause(seconds);
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
	watch_pause(linger);
	_exit(CODE_PEER);
}

static void say_all(struct watch *w, enum star_word word, const struct star_link *except)
{
	for (int i = 0; i < w->star.count; i++)
		if (&w->star.links[i] != except)
			star_say(&w->star, &w->star.links[i], word);
}

static _Noreturn void lost(struct watch *w, struct star_link *l, const char *how)
{
	const char *host = w->star.addresses[l->rank].host;
	if (w->star.rank == 0) {
		say_all(w, STAR_END, l);
		end_speaking(0, "rank %d was lost (%s; it ran on %s)", l->rank, how, host);
	}
	/* Rank 0 is gone: the lowest rank that can still be reached speaks. If rank 0 was only stopped and wakes up later,
	 * it finds on every connection that others have spoken. */
	star_say(&w->star, l, STAR_END);
	for (int r = 1; r < w->star.rank && r <= ELECTORS; r++)
		if (star_reachable(&w->star, r))
			end_in_silence(w, 2 * LINGER);
	end_speaking(LINGER, "rank 0 was lost (%s; it ran on %s)", how, host);
}

/* What link i has to say. True: the job is over for the thread. */
static bool hear(struct watch *w, int i)
{
	struct star_link *l = &w->star.links[i];
	for (;;) {
		switch (star_hear(l)) {
		case STAR_NOTHING:
			return false;
		case STAR_CLOSED:
			if (!w->gone[i])
				lost(w, l, "connection closed");
			return false;
		case STAR_CAUSE:
			star_say(&w->star, l, STAR_SPEAK);
			say_all(w, STAR_END, l);
			end_in_silence(w, SPEAK_TIME);
		case STAR_SPEAK:
			atomic_store(&w->voice, VOICE_SPEAK);
			return true;
		case STAR_END:
			end_in_silence(w, SPEAK_TIME);
		case STAR_GOODBYE:
			w->gone[i] = w->star.rank == 0; /* rank 0 itself is done only when it says so */
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
	if (w->asked || atomic_load(&w->voice) != VOICE_ASKING)
		return false;
	w->asked = true;
	if (w->star.rank != 0) {
		star_say(&w->star, &w->star.links[0], STAR_CAUSE);
		return false;
	}
	say_all(w, STAR_END, NULL);
	atomic_store(&w->voice, VOICE_SPEAK);
	return true;
}

/* The end of the job: everybody says goodbye to rank 0, which waits for all, itself too, from the first goodbye on. */
static bool try_finish(struct watch *w, double time)
{
	bool self = atomic_load(&w->finishing);
	char missing[128];
	int left = !self;
	if (self && !w->said_goodbye) {
		w->said_goodbye = true;
		say_all(w, STAR_GOODBYE, NULL);
	}
	if (w->star.rank != 0)
		return false;
	for (int i = 0; i < w->star.count; i++)
		left += !w->gone[i];
	if (left == w->star.size)
		return false;
	if (left == 0) {
		say_all(w, STAR_DONE, NULL);
		return true;
	}
	if (w->finish_since <= 0)
		w->finish_since = time;
	if (w->dev->timeout > 0 && time - w->finish_since > w->dev->timeout) {
		star_list(&w->star, self, w->gone, missing, sizeof missing);
		say_all(w, STAR_END, NULL);
		end_speaking(0, "waited %g s for rank %s at the end of the job", w->dev->timeout, missing);
	}
	return false;
}

/* SIGTERM counts when nothing bad was heard for a moment. */
static void look_at_term(struct watch *w, double time)
{
	if (!stop_term_held()) {
		w->term_since = 0;
	} else if (w->term_since <= 0) {
		w->term_since = time;
	} else if (time - w->term_since >= SIGTERM_WAIT) {
		w->term_since = 0;
		stop_term_counts(true);
	}
}

/* Sleeps until something happens; the seconds that count as others' silence: a process that was stopped for a while
 * must not take its own sleep for theirs. */
static double sleep_until_news(struct watch *w)
{
	bool busy = stop_term_held() || atomic_load(&w->finishing) || atomic_load(&w->voice) != VOICE_UNASKED;
	double pause = busy && w->beat > BUSY ? BUSY : w->beat, before = clock_now();
	int count = w->star.count;
	char drained[64];

	for (int i = 0; i < count; i++)
		w->fds[i] = (struct pollfd){.fd = w->star.links[i].closed ? -1 : w->star.links[i].fd, .events = POLLIN};
	w->fds[count] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
	poll(w->fds, (nfds_t)count + 1, (int)(pause * 1000) + 1);
	if (w->fds[count].revents)
		while (read(w->wake[0], drained, sizeof drained) > 0)
			;
	double slept = clock_now() - before;
	return slept < 2 * pause ? slept : 2 * pause;
}

void *watch_run(void *context)
{
	struct watch *w = context;
	char how[64];
	w->last_beat = clock_now();
	for (;;) {
		double slept = sleep_until_news(w), time = clock_now();
		for (int i = 0; i < w->star.count; i++) {
			w->silent[i] += slept;
			if (hear(w, i))
				return NULL;
			if (!w->gone[i] && w->silent[i] > w->silence) {
				snprintf(how, sizeof how, "no sign of life for %g s", w->silence);
				lost(w, &w->star.links[i], how);
			}
		}
		if (time - w->last_beat >= w->beat) {
			w->last_beat = time;
			say_all(w, STAR_ALIVE, NULL);
		}
		if (answer_main(w) || try_finish(w, time))
			return NULL;
		look_at_term(w, time);
	}
}

void watch_init(struct watch *w, struct device *dev)
{
	size_t n = (size_t)w->star.count;
	w->dev = dev;
	w->silence = dev->timeout > 0 && dev->timeout < SILENCE ? dev->timeout : SILENCE;
	w->beat = w->silence / BEATS;
	w->silent = calloc(n, sizeof *w->silent);
	w->gone = calloc(n, sizeof *w->gone);
	w->fds = calloc(n + 1, sizeof *w->fds);
	if (!w->silent || !w->gone || !w->fds)
		die(CODE_MACHINE, "out of memory");
}

void watch_finish(struct watch *w)
{
	free(w->silent);
	free(w->gone);
	free(w->fds);
}

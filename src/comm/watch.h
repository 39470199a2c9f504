/* watch.h: the thread behind control.h: it hears the peers, says who was lost, and ends the process when another rank
 * has said why.
 *
 * It never calls `die`: main may be in there, waiting for the answer whether it may speak. When the thread decides
 * that the job is over it ends the process itself; it returns only when main was allowed to speak, or when everybody
 * has said goodbye.
 *
 * Rank 0 decides: the first of these wins and all others are told to end in silence: a rank asks to speak, a
 * connection closes without a goodbye, a rank is silent too long, the goodbyes take too long. */
#ifndef MTRAIN_COMM_WATCH_H
#define MTRAIN_COMM_WATCH_H

#include <stdatomic.h>

#include "comm/star.h"
#include "dev/device.h"

/* Whether main, which is in `die`, may print. */
enum voice { VOICE_UNASKED, VOICE_ASKING, VOICE_SPEAK, VOICE_SILENT };

struct watch {
	struct star star;
	struct device *dev;     /* for its time-out */
	int wake[2];            /* a pipe: something has changed below, or a signal came */
	atomic_int voice;       /* main: ASKING; the thread: SPEAK or SILENT */
	atomic_bool finishing;  /* main is in control_finish */

	/* The thread's own. */
	double silence, beat;   /* seconds without a word after which a peer is lost; between our words */
	double *silent;         /* [links] seconds since the last word, as far as we were awake */
	bool *gone;             /* [links] said goodbye */
	struct pollfd *fds;     /* [links + 1] */
	double last_beat, term_since, finish_since;
	bool said_goodbye, asked;
};

/* Takes what the thread needs beside the star, which is open. Memory that is not to be had is a `die`. */
void watch_init(struct watch *w, struct device *dev);
void watch_finish(struct watch *w);

/* The thread. context: the struct watch. */
void *watch_run(void *context);

void watch_pause(double seconds);

#endif

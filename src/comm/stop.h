/* stop.h: requests to stop, by signals or by the program; the inside of control.h.
 *
 * A handler may do little: it sets flags, and writes a byte where somebody waits for news. SIGTERM is held back while
 * it may mean that a peer was lost: whoever watches the peers says when it counts.
 *
 * Owns the handlers of SIGUSR1, SIGTERM and SIGINT. Used by control.c and watch.c. */
#ifndef MTRAIN_COMM_STOP_H
#define MTRAIN_COMM_STOP_H

#include <stdbool.h>

/* Installs the handlers; SIGTERM is held back from here on. */
void stop_catch(void);

bool stop_requested(void);
int stop_signal(void);
void stop_request(int signal); /* 0: no signal */

/* Whether a SIGTERM came that was held back. */
bool stop_term_held(void);

/* The SIGTERM that was held back, if one was, counts now; those that come from here on are held back, or not. */
void stop_term_counts(bool hold_back);

/* A signal writes a byte to this descriptor; −1: nowhere. */
void stop_wake(int fd);

#endif

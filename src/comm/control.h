/* control.h: the thread beside training that knows whether the job should stop or has lost somebody.
 *
 * Signals: SIGUSR1, SIGTERM and SIGINT on any rank are a request to stop (save, exit 75); the request is spread by
 * the step's own reduction, so that all ranks stop after the same step. Peers: every rank holds a connection with
 * rank 0; when one closes without a goodbye, or rank 0 does, a peer was lost: rank 0 says which, and every rank ends
 * with CODE_PEER within seconds. A cause that a rank dies of travels the same way and is printed once. */
#ifndef MTRAIN_COMM_CONTROL_H
#define MTRAIN_COMM_CONTROL_H

#include "base/error.h"
#include "comm/comm.h"

/* Starts the thread and the signal handlers. Collective over the world. Fails: CODE_MACHINE. */
bool control_init(struct comm *world, struct error *e);

/* Says goodbye, so that our end is not taken for a loss. Collective over the world. */
void control_finish(void);

/* True once a stop was requested on this rank. */
bool control_stop_requested(void);

/* Requests a stop as a signal would (max_minutes). */
void control_request_stop(void);

/* The signal that asked for the stop, 0 if none did. */
int control_stop_signal(void);

#endif

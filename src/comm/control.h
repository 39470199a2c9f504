/* control.h: the thread beside training that knows whether the job should stop or has lost somebody.
 *
 * Signals: SIGUSR1, SIGTERM and SIGINT on any rank are a request to stop (save, exit 75); the request is spread by
 * the step's own reduction, so that all ranks stop after the same step. A SIGTERM counts only after a moment without
 * news of a lost peer, since launchers send it to the survivors when a rank has died. A second SIGINT ends at once.
 *
 * Peers: every rank holds a TCP connection with rank 0 (a star) over which both say now and then that they are
 * alive. A rank whose connection closes without a goodbye, or that is silent too long, was lost: rank 0 says so and
 * every rank ends with CODE_PEER within seconds. When rank 0 itself is lost, the lowest rank that others can still
 * reach says so. A rank that dies of a cause of its own asks rank 0 whether it may speak; the first one may, all
 * others end in silence. So one cause is printed, once.
 *
 * Owns the thread, the sockets, the handlers of these three signals, and what `die` asks and does. Used by main. */
#ifndef MTRAIN_COMM_CONTROL_H
#define MTRAIN_COMM_CONTROL_H

#include "base/error.h"
#include "comm/comm.h"

/* From here on signals are remembered. The first thing main does, so that none comes too early. */
void control_catch_signals(void);

/* Connects the star and starts the thread (a job of one rank needs neither). Collective over the world, after
 * launch_init. A peer is lost after 30 s of silence, or the device's time-out if that is shorter.
 * Fails: CODE_MACHINE, the same error on every rank. */
bool control_init(struct comm *world, struct error *e);

/* Says goodbye and waits until everybody has, so that no end is taken for a loss. Collective over the world; dies
 * with CODE_PEER, naming who is missing, after the device's time-out. The signals stay caught. */
void control_finish(void);

/* True once a stop was requested on this rank. */
bool control_stop_requested(void);

/* Requests a stop as a signal would (max_minutes). */
void control_request_stop(void);

/* The signal that asked for the stop, 0 if none did. */
int control_stop_signal(void);

#endif

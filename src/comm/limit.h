/* limit.h: a time limit on a call that blocks inside a library.
 *
 * Starting MPI, splitting a communicator and ending MPI wait for other ranks where no clock of ours can look. A
 * thread stands beside the call and ends the process when it takes too long.
 *
 * Used by transports around their collective set-up calls, one at a time. */
#ifndef MTRAIN_COMM_LIMIT_H
#define MTRAIN_COMM_LIMIT_H

/* From here to limit_end at most `seconds` may pass (0: no limit), else the process dies with CODE_PEER, naming call
 * and group (literals). The lowest rank that waits speaks for all: the others give it 3 s a rank (at most 24) to
 * bring the job down. */
void limit_begin(const char *call, const char *group, double seconds);
void limit_end(void);

#endif

/* log.h: what the process says, and who it says it is.
 *
 * Rank and phase are facts about the process, not about a group, so they live here once; every line that names a
 * rank takes it from here. Only rank 0 speaks on stdout; warnings and errors go to stderr.
 *
 * Owns the identity and the phase. Used by everything. */
#ifndef MTRAIN_BASE_LOG_H
#define MTRAIN_BASE_LOG_H

#include <stdbool.h>

/* Sets the rank of this process and the number of ranks. Before it: rank 0 of 1. */
void log_identity(int rank, int size);
int log_rank(void);
int log_size(void);

/* Names what the process is doing ("load", "forward", …); `die` and time-outs print it. The text must outlive its
 * use: string literals. NULL: nothing to name. */
void log_phase(const char *phase);
const char *log_phase_name(void);

/* A line on stdout, from rank 0 only. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line on stdout that stays where it is: the next log_bar, and any other line, takes its place. "" only removes it.
 * Needs: stdout is a terminal wider than the text; rank 0. */
void log_bar(const char *text);

/* "mtrain: warning: …" on stderr, from the rank that calls it. */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "mtrain: rank R: phase: cause" on stderr, one write; the rank is left out when there is only one. */
void log_cause(const char *cause);

/* False silences log_cause: another rank has already told the user the cause. */
void log_speaks(bool on);

#endif

/* launch.h: who started us: rank, size, place on the node, and how the job ends as one.
 *
 * Launchers are tried in the order of the list in backends.c: PMIx (mpirun, srun --mpi=pmix), the launcher's
 * environment (SLURM_*, OMPI_COMM_WORLD_*, PMI_*), alone. Owns the connection to the launcher. Used by main, and by
 * control.c to end the job. */
#ifndef MTRAIN_COMM_LAUNCH_H
#define MTRAIN_COMM_LAUNCH_H

#include <stddef.h>

#include "base/error.h"

struct launch {
	int rank, size;
	int local_rank, local_size; /* on this node; 0 of 1 where the launcher does not say */
	int node;                   /* alike on the ranks of a node, another on each; no order */
	const char *launcher;       /* "pmix", "slurm environment", …, "alone" */
};

/* One way to learn it. `detect` returns false without an error when this launcher did not start us. */
struct launcher {
	const char *name;
	bool (*detect)(struct launch *l, struct error *e);
	/* launch_gather's work, in `seconds` (0: no limit). */
	bool (*gather)(const struct launch *l, void *out, const void *in, size_t bytes, double seconds, struct error *e);
	void (*finish)(void);                               /* a clean end */
	void (*abort)(int code, const char *cause);         /* bring the whole job down; may return */
};

/* Tries the NULL-ended list in order. Sets log identity, and launch_abort as the die hook.
 * Fails: CODE_USAGE (an environment that contradicts itself; alike on every rank as far as one can tell). */
bool launch_init(struct launch *l, const struct launcher *const *list, struct error *e);
void launch_finish(void);

/* out [size·bytes]: every rank's `bytes` bytes, in rank order, on every rank, before there is any comm: through the launcher
 * where it carries data, else by TCP (meet.h). Collective over the job. Fails: CODE_MACHINE; the launcher does not say where
 * the others are; CODE_PEER: not all came in `seconds` (0: no limit). */
bool launch_gather(void *out, const void *in, size_t bytes, double seconds, struct error *e);

/* Whether no two ranks have the same text. Collective over the job; fails as launch_gather. */
enum { LAUNCH_TEXT = 96 };
bool launch_all_differ(bool *differ, const char text[LAUNCH_TEXT], double seconds, struct error *e);

/* What a transport does before the process leaves on a bad end, so that what other ranks' cards wait for is broken off.
 * Any thread may call it. NULL takes it away. */
void launch_set_leaving(void (*leaving)(void));

/* Does it; returns after a few seconds at most, or the process ends with the code. */
void launch_leave(int code);

/* Leaves, and asks the launcher to bring the whole job down with this code; returns after a few seconds at most, or the process
 * ends with the code. Any thread. */
void launch_abort(int code, const char *cause);

extern const struct launcher launcher_pmix, launcher_environment, launcher_alone;

#endif

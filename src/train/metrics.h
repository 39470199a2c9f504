/* metrics.h: metrics.jsonl, one JSON object a line: what a run did, for people's scripts.
 *
 * `train` lines have the contract's fields in its order; floats carry 9 significant digits; a number that is not finite
 * is the string "nan", "inf" or "-inf", never left out. Each line is one write, so a killed run leaves whole lines and
 * at most one torn one. The file's steps never go back: opening it for a resumed run cuts what lies behind the resumed
 * step, and a torn line.
 *
 * Owns the file. Used by rank 0's training loop; on other ranks it is NULL, which every function here takes. */
#ifndef MTRAIN_TRAIN_METRICS_H
#define MTRAIN_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct metrics;

/* What is known of an attempt when it is over; also what the console shows. */
struct metrics_step {
	int64_t step;            /* attempts, this one included */
	int64_t samples, tokens; /* consumed so far */
	double loss;             /* mean, with the weights before the update */
	double grad_norm;        /* unscaled, before clipping */
	double lr;
	double loss_scale;       /* that it ran with */
	bool skipped;
	double step_seconds;
	double tokens_per_second;
	double tflops_per_device;
	double mfu;              /* of the device's peak; NAN where that is not known */
	int64_t memory_bytes;    /* of this rank */
};

/* Opens dir/metrics.jsonl, cut to the lines up to `step` (0: a new run). jsonl false: nothing is written or cut.
 * Fails: CODE_MACHINE. */
bool metrics_open(struct metrics **m, const char *dir, bool jsonl, int64_t step, struct error *e);
void metrics_close(struct metrics *m);

void metrics_step(struct metrics *m, const struct metrics_step *line);
void metrics_eval(struct metrics *m, int64_t step, double loss); /* and perplexity, e^loss */

/* Events: {"kind":"event","step":…,"event":KIND, and what is named here}. */

void metrics_start(struct metrics *m, int ranks, const char *device);         /* "start": ranks, device */
void metrics_resume(struct metrics *m, int64_t step, const char *checkpoint); /* "resume": checkpoint */

/* "ledger": ranks, a JSON array (ledger.h). */
void metrics_ledger(struct metrics *m, int64_t step, const char *ranks);

/* "checkpoint": seconds it took; error, unless failure is NULL. */
void metrics_checkpoint(struct metrics *m, int64_t step, const char *failure, double seconds);

/* "overflow": loss_scale of that step; first, what was not finite first. */
void metrics_overflow(struct metrics *m, int64_t step, double loss_scale, const char *first);

void metrics_signal(struct metrics *m, int64_t step, int signal); /* "signal": signal, its number; 0: max_minutes */
void metrics_end(struct metrics *m, int64_t step, int code);      /* "end": code, the exit code */

#endif

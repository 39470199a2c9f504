/* calibrate_bench.h: memory for what is timed, and the clock. Inside of calibrate. */
#ifndef MTRAIN_PLAN_CALIBRATE_BENCH_H
#define MTRAIN_PLAN_CALIBRATE_BENCH_H

#include <math.h>

#include "base/arena.h"
#include "comm/comm.h"
#include "dev/cost/hardware.h"

struct calibrate_bench {
	struct device *dev;
	struct arena arena;
	struct hardware *h;
	double longest; /* seconds of the op that took longest since it was set to 0 */
};

/* The largest rows, width and heads of what is timed; on a processor the second of each. */
enum { CALIBRATE_ROUNDS = 9, CALIBRATE_ROWS = 16384, CALIBRATE_WIDTH = 50304, CALIBRATE_HEAD = 128,
       CALIBRATE_LEAST = 64 << 20, /* bytes of the arena */
       CALIBRATE_CPU_ROWS = 2048, CALIBRATE_CPU_WIDTH = 8192, CALIBRATE_CPU_HEAD = 64 };

/* Seconds. With cpu, that this process has had processors for, a thread: what else runs on the machine does not count. */
double calibrate_now(bool cpu, int threads);
static inline double calibrate_clock(const struct calibrate_bench *b)
{
	return calibrate_now(b->h->cpu, dev_threads(b->dev));
}

double calibrate_median(double *seconds, int count);

/* A measured point at a greater size than those before; rate above 0. */
void calibrate_point(struct hardware_curve *c, double size, double rate);

/* How often work that takes so long is repeated in a round of a few milliseconds. */
int calibrate_repeats(double seconds);

/* Times a statement on the compute queue: seconds of one. */
#define CALIBRATE_TIME(b, result, statement)                                                          \
	do {                                                                                          \
		double calibrate_rounds[CALIBRATE_ROUNDS];                                            \
		int calibrate_times = 1;                                                              \
		for (int calibrate_i = -2; calibrate_i < CALIBRATE_ROUNDS; calibrate_i++) {           \
			double calibrate_begin = calibrate_clock(b);                                     \
			for (int calibrate_k = 0; calibrate_k < calibrate_times; calibrate_k++)       \
				statement;                                                            \
			dev_finish((b)->dev, dev_mark((b)->dev, Q_COMPUTE));                          \
			double calibrate_took = (calibrate_clock(b) - calibrate_begin) / calibrate_times; \
			if (calibrate_i < 0)                                                          \
				calibrate_times = calibrate_repeats(calibrate_took);                  \
			else                                                                          \
				calibrate_rounds[calibrate_i] = calibrate_took;                       \
		}                                                                                     \
		(result) = calibrate_median(calibrate_rounds, CALIBRATE_ROUNDS);                      \
	} while (0)

__attribute__((format(printf, 4, 5)))
void calibrate_set(struct hardware_number *n, double value, enum hardware_mark mark, const char *format, ...);

/* Rates of all ops in a compute type. */
void calibrate_ops(struct calibrate_bench *b, enum dtype t);

/* seconds = floor + slope·size; `worst`: the farthest that a point is from it, as a share of the point. */
struct calibrate_line {
	double floor, slope, worst;
};

/* The line with the least squares of the points' shares, since small sizes count as much as large ones; through 0 where its floor
 * or slope would not be positive. Sizes and seconds above 0, two sizes at least. */
struct calibrate_line calibrate_fit(const double *size, const double *seconds, int count);

/* Links inside nodes and between them, from rank 0's places. `node` as in struct launch. Collective. Fails: CODE_MACHINE. */
bool calibrate_links(struct calibrate_bench *b, struct comm *world, int node, struct error *e);

#endif

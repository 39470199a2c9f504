/* call.h: one call of one op as plain data, so that the same call can be made on any device and in any type.
 *
 * A call lists its tensors with their roles and, on the host in FP64, their values. Values are rounded to the grid of one
 * type and stored in another: FP16 values in FP64 storage give the exact answer to what FP16 storage computes. Running
 * a call lays the tensors out with guard bands between them, aligned to their element and no more, poisons what the op
 * writes with NaN, and reads everything back: guards and inputs must be as they were.
 *
 * A call owns its values. Used by cases.c (which builds calls) and by the tests. */
#ifndef MTRAIN_TESTS_OPS_CALL_H
#define MTRAIN_TESTS_OPS_CALL_H

#include "dev/backend.h"

/* What an op does with a tensor. ROOM: written, but what it holds afterwards is not defined. */
enum role { IN, OUT, INOUT, ROOM };

/* Which type a tensor has: that of the call, of its sums, or one type whatever the call's. */
enum kind { KIND_T, KIND_S, KIND_F64, KIND_F32, KIND_BF16, KIND_F16, KIND_I32 };

enum { CALL_ARGS = 20, CALL_LIST = 3 };

struct arg {
	const char *name;
	struct tensor *at; /* where the op's struct holds the tensor; its data is set by call_run */
	enum role role;
	enum kind kind;
	struct arg *same;  /* shares the memory of this earlier one */
	bool shared;       /* a later one shares its memory: what it holds after the call is told there */
	bool late;         /* computed from a value that the op has rounded to T before */
	int64_t count;
	double *values;    /* [count] what it holds before the call; NULL for OUT and ROOM */
	double *result;    /* [count] what it holds after the last call_run */
};

#define OP_ARGUMENTS(name) struct op_##name name;
struct call {
	enum dtype storage; /* T of the call */
	enum dtype grid;    /* the type whose values T tensors hold */
	struct scalars scalars, scalars_after;
	bool moves_scalars; /* the op changes them; any other must not */
	struct arg args[CALL_ARGS];
	int count;
	union {
		OPS(OP_ARGUMENTS)
	} op;
	void (*invoke)(struct device *dev, const struct call *c);
	char text[96]; /* for messages */

	struct adamw_item items[CALL_LIST]; /* what lists in the op's struct point to */
	struct tensor grads[CALL_LIST];
	int64_t slots[CALL_LIST];

	unsigned char *image; /* all tensors and guards after the last call_run */
	size_t image_bytes;
};
#undef OP_ARGUMENTS

/* Adds a tensor. IN and INOUT get values N(0, 1) that depend on name and position only; the caller may change them. */
struct arg *call_add(struct call *c, const char *name, struct tensor *at, enum role role, enum kind kind, int dims,
		     const int64_t *shape);
struct arg *call_find(struct call *c, const char *name); /* NULL: there is none */

/* The earlier tensor `same` takes the place of a new INOUT one: an op that works in place. */
void call_share(struct call *c, const char *name, struct tensor *at, struct arg *same);

void call_round(struct call *c); /* all values to their grid; after building */
void call_finish(struct call *c);

/* A uniform number in [0, below) for (name, i). */
int64_t call_draw(const char *name, int64_t i, int64_t below);

double round_to(enum dtype type, double value); /* the nearest value of a type */

/* A device with memory for calls. */
struct bench {
	struct device *dev;
	unsigned char *memory;
	size_t room;
};
/* column: "plain", a set of instructions (device.h), or NULL: the best. */
void bench_open(struct bench *b, const struct backend *backend, const char *column, int threads);
void bench_close(struct bench *b);

/* Makes the call on b and reads everything back. skew: how many elements tensors are moved from 64-byte boundaries. Fails
 * the test when a guard, an input or the scalars are not as before. */
void call_run(struct bench *b, struct call *c, int skew);

/* Without reading back, `times` times: seconds for one. */
double call_time(struct bench *b, struct call *c, int times);

#endif

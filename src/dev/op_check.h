/* op_check.h: what the thin layer between the model and a backend's ops (ops.c) checks each call with.
 *
 * A call that is not as the book of ops has it is wrong code: the run ends, with the op and the tensor named. Used by ops*.c. */
#ifndef MTRAIN_DEV_OP_CHECK_H
#define MTRAIN_DEV_OP_CHECK_H

#include "dev/backend.h"

#define COUNT(...) ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* The name of the op that is being checked: the function's without "op_". */
#define OP (__func__ + 3)

/* A tensor of the call has this type and this shape. */
#define TENSOR(t, type, ...) op_check_tensor(OP, #t, a->t, type, COUNT(__VA_ARGS__), (int64_t[]){__VA_ARGS__})
#define OPTIONAL(t, type, ...)                            \
	do {                                              \
		if (tensor_given(a->t))                   \
			TENSOR(t, type, __VA_ARGS__);     \
	} while (0)

/* What the call writes as `t` shares no memory with the tensors listed. */
#define APART(t, ...)                                                                                          \
	op_check_apart(OP, #t, #__VA_ARGS__, a->t, (struct tensor[]){__VA_ARGS__},                                      \
	      (int)(sizeof((struct tensor[]){__VA_ARGS__}) / sizeof(struct tensor)))

/* Two tensors are the same memory or share none. */
#define SAME_OR_APART(t, u)                       \
	do {                                      \
		if (a->t.data != a->u.data)       \
			APART(t, a->u);           \
	} while (0)

#define HOLDS(condition)                                                                  \
	do {                                                                              \
		if (!(condition))                                                         \
			die(CODE_MACHINE, "%s: does not hold: %s", OP, #condition);       \
	} while (0)

#define ROWS(n) op_check_within(OP, "rows", n, dev->limits.rows)
#define WIDTH(n) op_check_within(OP, "width", n, dev->limits.width)

/* t has the type and shape, and an address aligned to its elements. */
void op_check_tensor(const char *op, const char *name, struct tensor t, enum dtype dtype, int dims, const int64_t *shape);

/* t shares no memory with others, which `names` lists. */
void op_check_apart(const char *op, const char *name, const char *names, struct tensor t, const struct tensor *others, int count);

/* n of what is within what the device was opened for. */
void op_check_within(const char *op, const char *what, int64_t n, int64_t limit);

void op_check_float(const char *op, const char *name, struct tensor t);
void op_check_span(const char *op, const struct span *s);
void op_check_dropout(const char *op, const struct dropout *d);

#endif

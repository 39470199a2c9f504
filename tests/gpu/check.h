/* check.h: one check after the other, where a failure ends its own check alone.
 *
 * The table of calls fails through cmocka's fail_msg. These programs run many checks and count, with cmocka or without, so
 * they bring a fail_msg of their own (plain/cmocka.h) and say here where it leads. */
#ifndef MTRAIN_TESTS_GPU_CHECK_H
#define MTRAIN_TESTS_GPU_CHECK_H

#include <cmocka.h>

/* Gives 0 first, and 1 again when a check up to CHECK_END has failed. */
#define CHECK_BEGIN() setjmp(check_left)
#define CHECK_END() ((void)0)

#endif

/* cmocka.h: what the ops' table of calls needs of cmocka, for machines that do not have it: a failure leaves the check that
 * runs. Used by tests/gpu alone, in place of the library. */
#ifndef MTRAIN_TESTS_GPU_CMOCKA_H
#define MTRAIN_TESTS_GPU_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

extern jmp_buf check_left;
void check_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
#define fail_msg(...) check_fail(__VA_ARGS__)
#define assert_true(condition) ((condition) ? (void)0 : check_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

#endif

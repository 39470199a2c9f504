/* fiber.h: threads of a block as stacks that one CPU thread changes between.
 *
 * A switch saves six registers and the stack pointer, nothing else: no signal mask, no system call. A fiber owns its
 * stack, which is kept for the next one. Used by the emulator alone. */
#ifndef MTRAIN_TESTS_FIBER_H
#define MTRAIN_TESTS_FIBER_H

#include <cstddef>

struct fiber {
	void *stack_pointer;
	char *stack; /* its low end */
	void *fake;  /* AddressSanitizer's */
};

enum { FIBER_STACK = 128 << 10 };

void fiber_start(fiber *f, void (*body)()); /* body never returns: its last act is fiber_leave(true) */
void fiber_enter(fiber *f);                 /* from the scheduler, until the fiber leaves */
void fiber_leave(fiber *f, bool for_ever);  /* from the fiber, back to the scheduler */
void fiber_arrived(void);                   /* first act of a body */

#endif

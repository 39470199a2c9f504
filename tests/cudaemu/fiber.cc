#include "fiber.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void fiber_switch(void **save, void *restore);
asm(".text\n"
    ".type fiber_switch, @function\n"
    "fiber_switch:\n"
    "	pushq %rbp\n"
    "	pushq %rbx\n"
    "	pushq %r12\n"
    "	pushq %r13\n"
    "	pushq %r14\n"
    "	pushq %r15\n"
    "	movq %rsp, (%rdi)\n"
    "	movq %rsi, %rsp\n"
    "	popq %r15\n"
    "	popq %r14\n"
    "	popq %r13\n"
    "	popq %r12\n"
    "	popq %rbx\n"
    "	popq %rbp\n"
    "	ret\n"
    ".size fiber_switch, .-fiber_switch\n");

static void *scheduler;
#ifdef __SANITIZE_ADDRESS__
static const void *scheduler_stack;
static size_t scheduler_size;
#endif

void fiber_start(fiber *f, void (*body)())
{
	if (!f->stack) {
		void *p = mmap(nullptr, FIBER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			       -1, 0);
		if (p == MAP_FAILED)
			abort();
		f->stack = static_cast<char *>(p);
	}
	void **top = reinterpret_cast<void **>(f->stack + FIBER_STACK);
	*--top = nullptr; /* where body would return to: keeps its frame aligned as after a call */
	*--top = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(body));
	for (int i = 0; i < 6; i++)
		*--top = nullptr;
	f->stack_pointer = top;
	f->fake = nullptr;
}

void fiber_enter(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
	void *fake;
	__sanitizer_start_switch_fiber(&fake, f->stack, FIBER_STACK);
#endif
	fiber_switch(&scheduler, f->stack_pointer);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void fiber_arrived(void)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
}

void fiber_leave(fiber *f, bool for_ever)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(for_ever ? nullptr : &f->fake, scheduler_stack, scheduler_size);
#else
	(void)for_ever;
#endif
	fiber_switch(&f->stack_pointer, scheduler);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(f->fake, &scheduler_stack, &scheduler_size);
#endif
}

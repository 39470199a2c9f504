/* error.h: what a function says when the input is wrong, and how a process ends when the machine is.
 *
 * Two kinds of trouble, two answers. Wrong input (a setting, a shard, a checkpoint): the function returns false
 * and fills a struct error; nothing is printed below main. A broken machine or a broken program: `die` prints one
 * line with rank, phase and cause, lets the launcher's hook bring the whole job down, and leaves.
 *
 * Owns nothing but the hook. Used by everything. */
#ifndef MTRAIN_BASE_ERROR_H
#define MTRAIN_BASE_ERROR_H

#include <stdbool.h>

/* Exit codes of the program (contract: "Exit codes"). */
enum exit_code {
	CODE_DONE = 0,
	CODE_MACHINE = 1,    /* machine or internal failure */
	CODE_USAGE = 2,      /* bad usage or config */
	CODE_DATA = 3,       /* bad data */
	CODE_CHECKPOINT = 4, /* bad checkpoint */
	CODE_DIVERGED = 5,   /* overflow_limit overflows in a row at the minimum scale */
	CODE_PEER = 6,       /* a peer was lost or a wait timed out */
	CODE_STOPPED = 75,   /* stopped early on request, checkpoint saved */
};

struct error {
	int code; /* an enum exit_code; 0 while nothing is wrong */
	char text[1024];
};

/* Fills *e with a code and a formatted cause and returns false, so that `return error_set(…)` reads well.
 * The first function that knows the cause words it; those above pass it on. */
bool error_set(struct error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Prints "mtrain: rank R: phase: cause" once (unless another rank speaks), calls the hook with the code, and leaves the process with that code.
 * Safe from any thread; the second caller waits for the first one's end. */
_Noreturn void die(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What `die` asks before it prints: of many ranks that die at once, one shall speak. When it answers false nothing is
 * printed here, and *code, which it may change, is what the process leaves with. NULL takes it away. */
void die_set_voice(bool (*may_speak)(int *code, const char *cause));

/* What `die` does before leaving: the launcher sets it to bring down the whole job. The cause is the line that
 * was printed, without its newline. NULL takes the hook away. */
void die_set_hook(void (*hook)(int code, const char *cause));

/* Ends the program when its own code is wrong. Always on. */
#define check(condition)                                                                         \
	do {                                                                                     \
		if (__builtin_expect(!(condition), 0))                                           \
			die(CODE_MACHINE, "%s:%d: check failed: %s", __FILE__, __LINE__, #condition); \
	} while (0)

#endif

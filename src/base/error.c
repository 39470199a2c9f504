#include "base/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

static void (*die_hook)(int code, const char *cause);
static bool (*die_voice)(int *code, const char *cause);
static pthread_mutex_t die_lock = PTHREAD_MUTEX_INITIALIZER;

bool error_set(struct error *e, int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	e->code = code;
	vsnprintf(e->text, sizeof e->text, format, args);
	va_end(args);
	return false;
}

void die_set_hook(void (*hook)(int code, const char *cause))
{
	die_hook = hook;
}

void die_set_voice(bool (*may_speak)(int *code, const char *cause))
{
	die_voice = may_speak;
}

void die(int code, const char *format, ...)
{
	char cause[1024];
	va_list args;

	pthread_mutex_lock(&die_lock); /* never unlocked: the first cause is the one that counts */
	va_start(args, format);
	vsnprintf(cause, sizeof cause, format, args);
	va_end(args);
	if (!die_voice || die_voice(&code, cause))
		log_cause(cause);
	if (die_hook)
		die_hook(code, cause);
	_exit(code);
}

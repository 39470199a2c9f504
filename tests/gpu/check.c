#include "check.h"

#include <stdarg.h>
#include <stdio.h>

jmp_buf check_left;

void check_fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("FAIL ", stdout);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	longjmp(check_left, 1);
}

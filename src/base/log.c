#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, size = 1;
static const char *volatile phase;
static volatile bool speaks = true;
static volatile bool bar; /* log_bar's line is on the terminal */

void log_identity(int new_rank, int new_size)
{
	rank = new_rank;
	size = new_size;
}

int log_rank(void)
{
	return rank;
}

int log_size(void)
{
	return size;
}

void log_phase(const char *name)
{
	phase = name;
}

const char *log_phase_name(void)
{
	return phase;
}

/* Shows what has been printed. What the log cannot write is lost, but fails no command: `whole` says whether standard output
 * had written all that commands themselves had printed before. */
static void show(bool whole)
{
	fflush(stdout);
	if (whole)
		clearerr(stdout);
}

static void remove_bar(void)
{
	if (bar)
		fputs("\r\033[K", stdout);
	bar = false;
}

void log_bar(const char *text)
{
	bool whole = !ferror(stdout);
	remove_bar();
	fputs(text, stdout);
	bar = *text != '\0';
	show(whole);
}

void log_info(const char *format, ...)
{
	va_list args;
	bool whole = !ferror(stdout);
	if (rank != 0)
		return;
	remove_bar();
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	show(whole);
}

/* One write(2) a line, so that the lines of many ranks on one terminal do not mix; and one line, whatever a name that
 * somebody typed holds. */
static void put_line(char *line, size_t room)
{
	size_t n = strnlen(line, room - 1);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	bool whole = !ferror(stdout);
	remove_bar();
	show(whole);
	ssize_t ignored = write(STDERR_FILENO, line, n);
	(void)ignored;
}

void log_warn(const char *format, ...)
{
	char line[1200];
	va_list args;
	int n = snprintf(line, sizeof line, "mtrain: warning: ");
	va_start(args, format);
	vsnprintf(line + n, sizeof line - (size_t)n, format, args);
	va_end(args);
	put_line(line, sizeof line);
}

void log_cause(const char *cause)
{
	char line[1200];
	int n = snprintf(line, sizeof line, "mtrain: ");
	if (!speaks)
		return;
	if (size > 1)
		n += snprintf(line + n, sizeof line - (size_t)n, "rank %d: ", rank);
	if (phase)
		n += snprintf(line + n, sizeof line - (size_t)n, "%s: ", phase);
	snprintf(line + n, sizeof line - (size_t)n, "%s", cause);
	put_line(line, sizeof line);
}

void log_speaks(bool on)
{
	speaks = on;
}

#include "train/console.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

static const double redraw_seconds = 0.1;

struct console {
	int64_t steps, every;
	int64_t first;       /* attempts behind us when the clock started; −1: it has not */
	double started;      /* then; after the first step, which is slow */
	double drawn;        /* when the bar was last drawn */
	bool any;
	struct metrics_step last;
};

static int columns(int fd)
{
	struct winsize size = {0};
	return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : -1;
}

/* Columns of the terminal that people look at; 0: there is none. */
static int terminal_width(void)
{
	const char *kind = getenv("TERM");
	int width = columns(STDOUT_FILENO);
	if (width < 0 || (kind && strcmp(kind, "dumb") == 0))
		return 0;
	if (width == 0) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)getppid());
		int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0) {
			width = columns(fd);
			close(fd);
		}
	}
	return width > 0 ? width : 0; /* what cannot say how wide it is, nobody looks at */
}

/* 3725 → "1:02:05"; "--:--" while it is not known. */
static const char *duration(char *buf, size_t room, double seconds)
{
	long long s = isfinite(seconds) && seconds >= 0 && seconds < 1e9 ? (long long)(seconds + 0.5) : -1;
	if (s < 0)
		snprintf(buf, room, "--:--");
	else if (s < 3600)
		snprintf(buf, room, "%lld:%02lld", s / 60, s % 60);
	else if (s < 86400)
		snprintf(buf, room, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(buf, room, "%lldd %lldh", s / 86400, s / 3600 % 24);
	return buf;
}

/* The parts of a line, the most wanted first: those that do not fit are left out. */
enum { PARTS = 8, PART_ROOM = 48 };

static int parts(char part[PARTS][PART_ROOM], const struct metrics_step *line, bool more, double seconds_left)
{
	char text[24];
	int n = 0;
	snprintf(part[n++], PART_ROOM, "loss %.4f%s", line->loss, line->skipped ? " skipped" : "");
	if (more)
		snprintf(part[n++], PART_ROOM, "ETA %s", duration(text, sizeof text, seconds_left));
	snprintf(part[n++], PART_ROOM, "%s tokens/s", text_si(text, sizeof text, line->tokens_per_second));
	snprintf(part[n++], PART_ROOM, "norm %.3g", line->grad_norm);
	snprintf(part[n++], PART_ROOM, "scale %.6g", line->loss_scale);
	snprintf(part[n++], PART_ROOM, "lr %.3g", line->lr);
	if (isfinite(line->mfu) && line->mfu > 0)
		snprintf(part[n++], PART_ROOM, "mfu %.1f%%", 100.0 * line->mfu);
	return n;
}

char *console_line(char buf[CONSOLE_ROOM], int width, const struct metrics_step *line, int64_t steps,
		   double seconds_left)
{
	char part[PARTS][PART_ROOM];
	int count = parts(part, line, line->step < steps, seconds_left);
	int n = snprintf(buf, CONSOLE_ROOM, "step %lld/%lld", (long long)line->step, (long long)steps);
	int room = width > 0 && width < CONSOLE_ROOM ? width : CONSOLE_ROOM - 1;
	int bar = width >= 100 ? 20 : 10;
	if (width > 0 && n + 3 + bar <= room) {
		int done = (int)((double)bar * (double)line->step / (double)steps);
		n += snprintf(buf + n, CONSOLE_ROOM - (size_t)n, " [");
		for (int i = 0; i < bar; i++)
			buf[n++] = i < done ? '=' : i == done ? '>' : ' ';
		n += snprintf(buf + n, CONSOLE_ROOM - (size_t)n, "]");
	}
	for (int i = 0; i < count && n + 2 + (int)strlen(part[i]) <= room; i++)
		n += snprintf(buf + n, CONSOLE_ROOM - (size_t)n, "  %s", part[i]);
	if (n > room)
		buf[room] = '\0';
	return buf;
}

struct console *console_open(int64_t step, int64_t steps, int64_t every)
{
	struct console *c = calloc(1, sizeof *c);
	if (!c)
		die(CODE_MACHINE, "out of memory");
	*c = (struct console){.steps = steps, .every = every, .first = -1, .last.step = step};
	return c;
}

static double seconds_left(const struct console *c, int64_t step, double time)
{
	if (c->first < 0 || step <= c->first)
		return -1;
	return (time - c->started) / (double)(step - c->first) * (double)(c->steps - step);
}

void console_step(struct console *c, const struct metrics_step *line)
{
	char buf[CONSOLE_ROOM];
	double time = clock_now();
	if (!c)
		return;
	c->last = *line;
	c->any = true;
	double left = seconds_left(c, line->step, time);
	int width = terminal_width();
	if (width == 0) {
		if (line->step % c->every == 0 || line->step == c->steps)
			log_info("%s", console_line(buf, 0, line, c->steps, left));
	} else if (time - c->drawn >= redraw_seconds || line->step == c->steps) {
		log_bar(console_line(buf, width - 1, line, c->steps, left));
		c->drawn = time;
	}
	if (c->first < 0) {
		c->first = line->step;
		c->started = time;
	}
}

void console_eval(struct console *c, int64_t step, double loss)
{
	if (!c)
		return;
	log_info("step %lld/%lld  validation loss %.4f  perplexity %.4g", (long long)step, (long long)c->steps, loss,
		 exp(loss));
	c->drawn = 0; /* the line took the bar's place */
}

void console_close(struct console *c)
{
	char buf[CONSOLE_ROOM];
	if (!c)
		return;
	if (c->any && terminal_width() > 0) /* the bar's place is taken by a line that stays */
		log_info("%s", console_line(buf, 0, &c->last, c->steps, seconds_left(c, c->last.step, clock_now())));
	free(c);
}

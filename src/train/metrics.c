#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

enum { LINE_ROOM = 2048 };

struct metrics {
	int fd;       /* −1: no file is wanted */
	bool warned;  /* the file could not be written; said once */
	size_t used;
	char line[LINE_ROOM];
};

/* The step of one line without its newline; −1 if it is no line of ours. */
static int64_t step_of(const char *text, size_t bytes)
{
	struct error e;
	int64_t step;
	cJSON *line = json_parse("", text, bytes, CODE_DATA, &e);
	if (!line || !json_count(line, "step", &step))
		step = -1;
	cJSON_Delete(line);
	return step;
}

/* How much of the file stays: up to the last whole line at or before `step`. Steps ascend, so the end is looked at first. */
static size_t kept(const char *text, size_t bytes, int64_t step)
{
	while (bytes > 0) {
		const char *line = memrchr(text, '\n', bytes - 1);
		size_t begin = line ? (size_t)(line - text) + 1 : 0;
		if (text[bytes - 1] == '\n') {
			int64_t at = step_of(text + begin, bytes - 1 - begin);
			if (at >= 0 && at <= step)
				break;
		}
		bytes = begin;
	}
	return bytes;
}

bool metrics_open(struct metrics **out, const char *dir, bool jsonl, int64_t step, struct error *e)
{
	char path[PATH_ROOM];
	struct file_map map = {0};
	struct metrics *m = calloc(1, sizeof *m);
	if (!m)
		die(CODE_MACHINE, "out of memory");
	m->fd = -1;
	*out = m;
	if (!jsonl)
		return true;
	if (!file_join(path, dir, "metrics.jsonl")) {
		error_set(e, CODE_MACHINE, "%s: path too long", dir);
	} else if (!file_exists(path) || file_map_open(&map, path, CODE_MACHINE, e)) {
		size_t stay = step > 0 ? kept((const char *)map.data, map.size, step) : 0;
		file_map_close(&map);
		m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
		if (m->fd >= 0 && ftruncate(m->fd, (off_t)stay) == 0)
			return true;
		error_set(e, CODE_MACHINE, "%s: %s", path, strerror(errno));
	}
	metrics_close(m);
	*out = NULL;
	return false;
}

void metrics_close(struct metrics *m)
{
	if (m && m->fd >= 0)
		close(m->fd);
	free(m);
}

static void add(struct metrics *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct metrics *m, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(m->line + m->used, LINE_ROOM - m->used, format, args);
	va_end(args);
	check(n >= 0 && (size_t)n < LINE_ROOM - m->used);
	m->used += (size_t)n;
}

static void add_count(struct metrics *m, const char *key, int64_t value)
{
	add(m, ",\"%s\":%lld", key, (long long)value);
}

static void add_number(struct metrics *m, const char *key, double value)
{
	if (isfinite(value))
		add(m, ",\"%s\":%.9g", key, value);
	else
		add(m, ",\"%s\":\"%s\"", key, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

/* A JSON string, cut where it would not fit; bytes that are not ASCII are passed on. */
static void add_text(struct metrics *m, const char *key, const char *text)
{
	add(m, ",\"%s\":\"", key);
	for (; *text && m->used + 16 < LINE_ROOM / 2; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			add(m, "\\%c", c);
		else if (c < 0x20)
			add(m, "\\u%04x", c);
		else
			add(m, "%c", c);
	}
	add(m, "\"");
}

static bool begin(struct metrics *m, const char *kind, int64_t step)
{
	if (!m || m->fd < 0)
		return false;
	m->used = 0;
	add(m, "{\"kind\":\"%s\",\"step\":%lld", kind, (long long)step);
	return true;
}

/* A full disk must not end the run, nor leave half a line in the middle of the file. */
static void write_line(struct metrics *m, const char *line, size_t bytes)
{
	off_t before = lseek(m->fd, 0, SEEK_END);
	if (file_write_all(m->fd, line, bytes))
		return;
	int reason = errno;
	if (before < 0 || ftruncate(m->fd, before) != 0) {
		close(m->fd);
		m->fd = -1;
	}
	if (!m->warned)
		log_warn("metrics.jsonl: %s; training goes on, lines are missing", strerror(reason));
	m->warned = true;
}

static void end(struct metrics *m)
{
	add(m, "}\n");
	write_line(m, m->line, m->used);
}

void metrics_step(struct metrics *m, const struct metrics_step *line)
{
	if (!begin(m, "train", line->step))
		return;
	add_count(m, "samples", line->samples);
	add_count(m, "tokens", line->tokens);
	add_number(m, "loss", line->loss);
	add_number(m, "grad_norm", line->grad_norm);
	add_number(m, "lr", line->lr);
	add_number(m, "loss_scale", line->loss_scale);
	add(m, ",\"skipped\":%s", line->skipped ? "true" : "false");
	add_number(m, "step_seconds", line->step_seconds);
	add_number(m, "tokens_per_second", line->tokens_per_second);
	add_number(m, "tflops_per_device", line->tflops_per_device);
	add_number(m, "mfu", line->mfu);
	add_count(m, "memory_bytes", line->memory_bytes);
	end(m);
}

void metrics_eval(struct metrics *m, int64_t step, double loss)
{
	if (!begin(m, "eval", step))
		return;
	add_number(m, "loss", loss);
	add_number(m, "perplexity", exp(loss));
	end(m);
}

static bool begin_event(struct metrics *m, const char *event, int64_t step)
{
	if (!begin(m, "event", step))
		return false;
	add(m, ",\"event\":\"%s\"", event);
	return true;
}

void metrics_start(struct metrics *m, int ranks, const char *device)
{
	if (!begin_event(m, "start", 0))
		return;
	add_count(m, "ranks", ranks);
	add_text(m, "device", device);
	end(m);
}

void metrics_ledger(struct metrics *m, int64_t step, const char *ranks)
{
	char *line;
	if (!begin_event(m, "ledger", step))
		return;
	int n = asprintf(&line, "%.*s,\"ranks\":%s}\n", (int)m->used, m->line, ranks);
	check(n > 0);
	write_line(m, line, (size_t)n);
	free(line);
}

void metrics_resume(struct metrics *m, int64_t step, const char *checkpoint)
{
	if (!begin_event(m, "resume", step))
		return;
	add_text(m, "checkpoint", checkpoint);
	end(m);
}

void metrics_checkpoint(struct metrics *m, int64_t step, const char *failure, double seconds)
{
	if (!begin_event(m, "checkpoint", step))
		return;
	add_number(m, "seconds", seconds);
	if (failure)
		add_text(m, "error", failure);
	end(m);
}

void metrics_overflow(struct metrics *m, int64_t step, double loss_scale, const char *first)
{
	if (!begin_event(m, "overflow", step))
		return;
	add_number(m, "loss_scale", loss_scale);
	add_text(m, "first", first);
	end(m);
}

void metrics_signal(struct metrics *m, int64_t step, int signal)
{
	if (!begin_event(m, "signal", step))
		return;
	add_count(m, "signal", signal);
	end(m);
}

void metrics_end(struct metrics *m, int64_t step, int code)
{
	if (!begin_event(m, "end", step))
		return;
	add_count(m, "code", code);
	end(m);
}

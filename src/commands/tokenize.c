#include "commands/tokenize.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "train/shard_writer.h"

enum {
	VOCAB = 257,
	END_OF_DOCUMENT = 256,
	STRETCH = 1 << 22, /* bytes of a file that one thread takes at once */
	BUFFER = 1 << 17,  /* bytes that are read at once */
	QUEUE = 64,
};

/* Bytes begin … begin+bytes−1 of a file, to be put at token `place`. */
struct stretch {
	char *path;
	int64_t begin, bytes, place;
	bool last; /* of its file: end-of-document follows */
};

/* What the walking thread and the converting threads share. */
struct work {
	const struct tokenize_settings *settings;
	struct shard_writer writer;
	pthread_mutex_t lock;
	pthread_cond_t more, room;
	struct stretch queue[QUEUE];
	int first, count;
	bool ended;  /* nothing more is coming */
	bool failed; /* error says why; everybody stops */
	struct error error;
};

static void fail(struct work *w, const struct error *e)
{
	pthread_mutex_lock(&w->lock);
	if (!w->failed)
		w->error = *e;
	w->failed = true;
	pthread_cond_broadcast(&w->more);
	pthread_cond_broadcast(&w->room);
	pthread_mutex_unlock(&w->lock);
}

/* False: something has failed. */
static bool put_stretch(struct work *w, const char *path, int64_t begin, int64_t bytes, int64_t place, bool last)
{
	char *copy = strdup(path);
	if (!copy)
		die(CODE_MACHINE, "out of memory for a path");
	pthread_mutex_lock(&w->lock);
	while (w->count == QUEUE && !w->failed)
		pthread_cond_wait(&w->room, &w->lock);
	bool good = !w->failed;
	if (good) {
		w->queue[(w->first + w->count++) % QUEUE] = (struct stretch){copy, begin, bytes, place, last};
		pthread_cond_signal(&w->more);
	}
	pthread_mutex_unlock(&w->lock);
	if (!good)
		free(copy);
	return good;
}

/* False: there is none any more, or something has failed. */
static bool take_stretch(struct work *w, struct stretch *s)
{
	pthread_mutex_lock(&w->lock);
	while (w->count == 0 && !w->ended && !w->failed)
		pthread_cond_wait(&w->more, &w->lock);
	bool good = w->count > 0 && !w->failed;
	if (good) {
		*s = w->queue[w->first];
		w->first = (w->first + 1) % QUEUE;
		w->count--;
		pthread_cond_signal(&w->room);
	}
	pthread_mutex_unlock(&w->lock);
	return good;
}

static bool changed(const struct stretch *s, struct error *e)
{
	return error_set(e, CODE_DATA, "%s: changed while it was read: it was %" PRId64 " bytes long", s->path,
			 s->begin + s->bytes);
}

/* text: BUFFER bytes, ids: BUFFER + 1. */
static bool convert(struct work *w, const struct stretch *s, int fd, unsigned char *text, uint16_t *ids,
		    struct error *e)
{
	int64_t done = 0;
	do {
		int64_t n = s->bytes - done < BUFFER ? s->bytes - done : BUFFER, place = s->place + done;
		if (!file_pread(fd, text, (size_t)n, s->begin + done))
			return errno ? error_set(e, CODE_DATA, "%s: %s", s->path, strerror(errno)) : changed(s, e);
		for (int64_t i = 0; i < n; i++)
			ids[i] = htole16(text[i]);
		done += n;
		if (done == s->bytes && s->last) {
			if (file_pread(fd, text, 1, s->begin + done))
				return changed(s, e);
			ids[n++] = htole16(END_OF_DOCUMENT);
		}
		if (!shard_writer_put(&w->writer, place, ids, n, e))
			return false;
	} while (done < s->bytes);
	return true;
}

static void *convert_all(void *context)
{
	struct work *w = context;
	struct stretch s;
	struct error e;
	unsigned char *text = malloc(BUFFER);
	uint16_t *ids = malloc((BUFFER + 1) * sizeof *ids);
	if (!text || !ids)
		die(CODE_MACHINE, "out of memory for the buffers of tokenize");
	while (take_stretch(w, &s)) {
		int fd = open(s.path, FILE_READING);
		if (fd < 0) {
			error_set(&e, CODE_DATA, "%s: %s", s.path, strerror(errno));
			fail(w, &e);
		} else {
			if (!convert(w, &s, fd, text, ids, &e))
				fail(w, &e);
			close(fd);
		}
		free(s.path);
	}
	free(text);
	free(ids);
	return NULL;
}

/* One file is one document: reserves its place, in sequences, and queues its stretches. */
static bool add_file(void *context, const char *path, const struct stat *st, struct error *e)
{
	struct work *w = context;
	struct stat own;
	if (fstat(w->writer.bin, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino)
		return error_set(e, CODE_USAGE, "output %s: it lies inside an input folder, which would make it its own input",
				 w->settings->output);
	int64_t bytes = st->st_size, tokens = bytes + 1, longest = w->settings->longest, place = w->writer.tokens;
	for (int64_t done = 0; done < tokens; done += longest)
		shard_writer_add(&w->writer, tokens - done < longest ? tokens - done : longest, done > 0);
	int64_t done = 0;
	do {
		int64_t n = bytes - done < STRETCH ? bytes - done : STRETCH;
		if (!put_stretch(w, path, done, n, place + done, done + n == bytes))
			return false;
		done += n;
	} while (done < bytes);
	return true;
}

static bool walk_inputs(struct work *w, struct tokenize_counts *counts, struct error *e)
{
	for (int i = 0; i < w->settings->input_count; i++) {
		int64_t before = w->writer.documents;
		const char *input = w->settings->inputs[i];
		if (!inputs_walk(input, add_file, w, &counts->skipped, e))
			return false;
		if (w->writer.documents == before)
			return error_set(e, CODE_DATA, "%s: there is no file in this folder", input);
	}
	return true;
}

/* Walks while the threads convert; returns when all have ended. */
static bool run_threads(struct work *w, struct tokenize_counts *counts, struct error *e)
{
	int jobs = w->settings->jobs;
	pthread_t *threads = calloc((size_t)jobs, sizeof *threads);
	if (!threads)
		die(CODE_MACHINE, "out of memory for %d jobs", jobs);
	for (int i = 0; i < jobs; i++) {
		int reason = pthread_create(&threads[i], NULL, convert_all, w);
		if (reason)
			die(CODE_MACHINE, "thread %d of %d jobs: %s", i + 1, jobs, strerror(reason));
	}
	if (!walk_inputs(w, counts, e))
		fail(w, e); /* when a thread has failed before, its error stands */
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < jobs; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	for (; w->count > 0; w->count--) /* of a failed run */
		free(w->queue[(w->first + w->count - 1) % QUEUE].path);
	if (w->failed)
		*e = w->error;
	return !w->failed;
}

bool tokenize(const struct tokenize_settings *s, struct tokenize_counts *counts, struct error *e)
{
	struct work w = {.settings = s};
	*counts = (struct tokenize_counts){0};
	if (!shard_writer_open(&w.writer, s->output, TOKEN_U16, e))
		return false;
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.more, NULL);
	pthread_cond_init(&w.room, NULL);
	bool good = run_threads(&w, counts, e);
	pthread_cond_destroy(&w.room);
	pthread_cond_destroy(&w.more);
	pthread_mutex_destroy(&w.lock);
	struct shard_facts facts = {.tokenizer = "bytes", .vocab = VOCAB, .end_of_document = END_OF_DOCUMENT};
	counts->documents = w.writer.documents;
	counts->tokens = w.writer.tokens;
	if (good)
		return shard_writer_finish(&w.writer, &facts, e);
	shard_writer_abandon(&w.writer);
	return false;
}

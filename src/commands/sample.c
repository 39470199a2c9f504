#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends.h"
#include "commands/commands.h"
#include "commands/job.h"
#include "commands/options.h"
#include "train/frozen.h"
#include "train/sampler.h"

struct values {
	const char *checkpoint, *prompt;
	int64_t tokens, top_k, seed;
	double temperature, top_p;
};

static const struct option_row rows[] = {
	{"checkpoint", "DIR", OPTION_TEXT, offsetof(struct values, checkpoint), true, NULL,
	 "a checkpoint's folder, or a run's: its newest checkpoint"},
	{"prompt", "TEXT", OPTION_TEXT, offsetof(struct values, prompt), true, NULL, "what the text begins with; may be empty"},
	{"tokens", "N", OPTION_COUNT, offsetof(struct values, tokens), false, "[1, inf)", "how many tokens to add (256)"},
	{"temperature", "T", OPTION_NUMBER, offsetof(struct values, temperature), false, "[0, inf)",
	 "divides the logits; 0: always the likeliest (1)"},
	{"top-k", "K", OPTION_COUNT, offsetof(struct values, top_k), false, "[0, inf)", "only the K likeliest; 0: all (0)"},
	{"top-p", "P", OPTION_NUMBER, offsetof(struct values, top_p), false, "(0, 1]",
	 "only the likeliest that have probability P together (1)"},
	{"seed", "S", OPTION_COUNT, offsetof(struct values, seed), false, "[0, inf)", "the same seed gives the same text (1234)"},
};

static const struct options options = {
	.usage = "mtrain sample --checkpoint DIR --prompt TEXT [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed S]",
	.summary = "Goes on writing a text with a trained model, on one rank, until N tokens or the end of the document.",
	.rows = rows,
	.count = sizeof rows / sizeof *rows,
};

enum { BYTES = 256, END_OF_DOCUMENT = 256, BYTES_VOCAB = 257 };

/* Needs a model of bytes: what data.tokenizer = bytes trains. */
static bool check_tokenizer(const struct frozen *f, const char *path, struct error *e)
{
	const char *tokenizer = f->config.data.tokenizer;
	if (tokenizer && strcmp(tokenizer, "bytes") == 0 && f->config.model.vocab >= BYTES_VOCAB)
		return true;
	return error_set(e, CODE_CHECKPOINT, "%s: was not trained on text of the bytes tokenizer (its data.tokenizer is '%s'), "
			 "so its tokens cannot be turned into text", path, tokenizer ? tokenizer : "");
}

/* window[0 … count) is the end of the text so far, as much of it as the model sees; one more token follows it. */
static int64_t follow(int32_t *window, int64_t count, int64_t T, int32_t token)
{
	if (count == T)
		for (count = 0; count < T - 1; count++)
			window[count] = window[count + 1];
	window[count++] = token;
	return count;
}

static void write_on(struct frozen *f, const struct values *v)
{
	const struct sampler s = {v->temperature, v->top_k, v->top_p, (uint64_t)v->seed};
	int64_t T = f->config.model.sequence, V = f->config.model.vocab, count = 0;
	int32_t *window = calloc((size_t)T, sizeof *window);
	float *logits = calloc((size_t)V, sizeof *logits);
	int32_t *room = calloc((size_t)V, sizeof *room);

	check(window && logits && room);
	count = follow(window, count, T, END_OF_DOCUMENT); /* a document begins */
	for (const char *p = v->prompt; *p; p++)
		count = follow(window, count, T, (unsigned char)*p);
	fputs(v->prompt, stdout);
	for (int64_t n = 0; n < v->tokens && fflush(stdout) == 0; n++) {
		frozen_logits(f, window, count, logits);
		int32_t token = sampler_pick(&s, n, logits, V, room);
		if (token >= BYTES)
			break;
		putchar(token);
		count = follow(window, count, T, token);
	}
	putchar('\n');
	free(window);
	free(logits);
	free(room);
}

static bool sample(struct job *j, const struct values *v, struct error *e)
{
	struct frozen f;
	if (!frozen_open(&f, v->checkpoint, j->world, j->dev, e))
		return false;
	bool good = check_tokenizer(&f, v->checkpoint, e);
	if (good)
		write_on(&f, v);
	frozen_close(&f);
	return good;
}

int command_sample(int argc, char **argv, struct error *e)
{
	struct values v = {.tokens = 256, .temperature = 1.0, .top_p = 1.0, .seed = 1234};
	struct job job = {0};
	bool helped;

	if (!options_read(&options, &v, argc, argv, NULL, NULL, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	if (!launch_init(&job.launch, launchers, e))
		return e->code;
	if (job.launch.size > 1) {
		error_set(e, CODE_USAGE, "sample runs on one rank, not on %d", job.launch.size);
		return e->code;
	}
	if (!job_open(&job, &(struct device_settings){.backend = "auto"},
		      &(struct launch_settings){.nccl_algorithm = "auto", .nccl_protocol = "auto"}, e))
		return e->code;
	bool good = sample(&job, &v, e);
	job_close(&job);
	return good ? CODE_DONE : e->code;
}

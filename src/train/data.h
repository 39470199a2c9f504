/* data.h: the training data: sample n of the run, whichever files it lies in; and the validation windows.
 *
 * A source is one or several shards end to end, N tokens (shard_stream.h). With sequence length T it has ⌊(N−1)/T⌋
 * windows; window k is tokens k·T … k·T+T, the last one shared with the next window. A run's sample n (from 0) comes
 * from a source chosen by the blend (blend.h), as that source's sample number i: window order_window(seed, source, i
 * / windows, windows, i % windows) (order.h). So what a sample holds depends on files, seed and T alone: not on
 * mesh, batch, steps or restarts, and nothing is cached on disk. Every rank opens the data itself.
 *
 * Owns the open shards and one window of memory. One caller at a time. Used by the training loop and evaluation. */
#ifndef MTRAIN_TRAIN_DATA_H
#define MTRAIN_TRAIN_DATA_H

#include "train/blend.h"
#include "train/settings.h"
#include "train/shard_stream.h"

/* A stretch of windows of one stream. */
struct data_part {
	const struct shard_stream *stream;
	int64_t begin;   /* its first token */
	int64_t tokens;
	int64_t windows;
};

struct data {
	uint64_t seed;
	int64_t sequence;        /* T */
	char tokenizer[SHARD_TOKENIZER]; /* "": not known */
	int64_t vocab;           /* ids are below it */
	int64_t end_of_document; /* −1: not known */
	bool mask_end_of_document;
	int sources;
	struct shard_stream *streams; /* [sources], then the one of `valid` */
	struct data_part *train;      /* [sources] */
	struct data_part *valid;      /* [valid_parts]: the file(s) of `valid`, or what `split` cut off each source */
	int valid_parts;
	int64_t tokens, windows;  /* of train, over all sources */
	int64_t documents;        /* of all files of train, before `split`; −1: the format does not say */
	int64_t valid_windows;    /* 0: there is no validation data */
	struct blend blend;
	int32_t *window;          /* [T + 1] */
};

/* Opens the data that [data] of the settings names, "" or NULL where nothing was typed. vocab: of the model; 0: take
 * it from PREFIX.json or the tokenizer. Needs: sequence ≥ 1.
 * Fails: CODE_USAGE: a setting that is malformed or that these files cannot use, no vocabulary size anywhere;
 * CODE_DATA: what shard_stream_open says, a part without one window, files that disagree on their tokenizer. */
bool data_open(struct data *d, const struct data_settings *s, uint64_t seed, int64_t sequence, int64_t vocab,
	       struct error *e);
void data_close(struct data *d);

/* Where a sample is. */
struct data_place {
	int source;
	int64_t epoch;  /* of the source, from 0 */
	int64_t window; /* of the source's train part */
};

/* The place of sample n ≥ 0. In rising order it costs a step a sample; else see blend_seek. */
struct data_place data_find(struct data *d, int64_t sample);

/* Sample n for training: inputs[T] are its first T tokens, targets[T] its last T; targets are −1 where
 * mask_end_of_document is set and the input is end-of-document. Fails: as shard_read. */
bool data_read(struct data *d, int64_t sample, int32_t *inputs, int32_t *targets, struct error *e);

/* The same for window k < valid_windows of the validation data, in file order. */
bool data_read_valid(struct data *d, int64_t window, int32_t *inputs, int32_t *targets, struct error *e);

/* Samples that each source has given when `samples` have been taken in all: taken[sources], for the checkpoint. */
void data_taken(struct data *d, int64_t samples, int64_t *taken);

/* Whether a checkpoint's counters are those of this data. On true the run goes on where it stopped. Fails:
 * CODE_DATA, with the first difference: sources or weights have changed, so the order of the run is broken; the data
 * is still good to use, as if it had been this one from sample 0 on. */
bool data_check_taken(struct data *d, int64_t samples, const int64_t *taken, int count, struct error *e);

#endif

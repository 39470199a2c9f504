#include "train/data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/data_list.h"
#include "train/order.h"

enum { BYTES_VOCAB = 257, BYTES_END_OF_DOCUMENT = 256 };

static bool given(const char *text)
{
	return text && *text;
}

static void *zeroed(int64_t count, size_t size)
{
	void *memory = calloc((size_t)count, size);
	if (!memory)
		die(CODE_MACHINE, "out of memory for the lists of data sources");
	return memory;
}

/* Opens the sources that data.train names: one for each weight, else one of everything. */
static bool open_train(struct data *d, const struct data_list *l, enum shard_format format, struct error *e)
{
	bool weighted = l->weights[0] != NULL;
	const char *const *weights = weighted ? l->weights : (const char *const[]){"1"};
	int sources = weighted ? l->count : 1, names = weighted ? 1 : l->count;
	d->streams = zeroed(sources + 1, sizeof *d->streams);
	d->train = zeroed(sources, sizeof *d->train);
	d->valid = zeroed(sources, sizeof *d->valid);
	d->sources = sources;
	if (!blend_init(&d->blend, weights, sources, e))
		return false;
	for (int i = 0; i < sources; i++)
		if (!shard_stream_open(&d->streams[i], &l->names[i], names, format, e))
			return false;
	return true;
}

static bool open_valid(struct data *d, const struct data_settings *s, enum shard_format format, struct error *e)
{
	struct data_list l;
	if (!given(s->valid))
		return true;
	if (given(s->split))
		return error_set(e, CODE_USAGE,
				 "data.valid and data.split are both given: validation data comes from files of "
				 "its own or is cut out of data.train, not both");
	if (!data_list_init(&l, "data.valid", s->valid, e))
		return false;
	bool good = !l.weights[0] || error_set(e, CODE_USAGE,
					       "data.valid = %s: validation data is read once in file order, so "
					       "a weight has no use: leave it out",
					       s->valid);
	good = good && shard_stream_open(&d->streams[d->sources], l.names, l.count, format, e);
	data_list_finish(&l);
	return good;
}

static bool open_streams(struct data *d, const struct data_settings *s, struct error *e)
{
	enum shard_format format;
	struct data_list l;
	if (!shard_format_of(s->format, &format, e) || !data_list_init(&l, "data.train", s->train, e))
		return false;
	bool good = open_train(d, &l, format, e);
	data_list_finish(&l);
	return good && open_valid(d, s, format, e);
}

/* What PREFIX.json files and the tokenizer say, which must agree. */
static bool gather_facts(const struct data *d, const char *tokenizer, struct shard_facts *known, struct error *e)
{
	const char *from = "data.tokenizer";
	*known = shard_facts_none();
	if (given(tokenizer)) {
		if (strcmp(tokenizer, "bytes") != 0)
			return error_set(e, CODE_USAGE, "data.tokenizer = %s: the tokenizer that is known is bytes",
					 tokenizer);
		strcpy(known->tokenizer, tokenizer);
		known->vocab = BYTES_VOCAB;
		known->end_of_document = BYTES_END_OF_DOCUMENT;
	}
	for (int i = 0; i <= d->sources; i++)
		for (int j = 0; j < d->streams[i].count; j++) {
			const struct shard *shard = &d->streams[i].shards[j];
			const struct shard_facts *f = &shard->facts;
			if (f->vocab == 0)
				continue;
			if (known->vocab == 0) {
				*known = *f;
				from = shard->path;
			}
			if (strcmp(f->tokenizer, known->tokenizer) != 0 || f->vocab != known->vocab ||
			    f->end_of_document != known->end_of_document)
				return error_set(e, CODE_DATA,
						 "%s: tokenizer \"%s\", %" PRId64 " ids, end of document %" PRId64
						 ", but %s has \"%s\", %" PRId64 ", %" PRId64
						 ": one model cannot read both",
						 shard->path, f->tokenizer, f->vocab, f->end_of_document, from,
						 known->tokenizer, known->vocab, known->end_of_document);
		}
	return true;
}

static bool settle_vocab(struct data *d, const struct shard_facts *known, int64_t vocab, struct error *e)
{
	strcpy(d->tokenizer, known->tokenizer);
	d->vocab = vocab ? vocab : known->vocab;
	if (d->vocab == 0)
		return error_set(e, CODE_USAGE,
				 "model.vocab is not given, and the data does not say it (no PREFIX.json, no "
				 "data.tokenizer): give the number of token ids");
	if (d->vocab < 1 || d->vocab > INT32_MAX)
		return error_set(e, CODE_USAGE, "model.vocab = %" PRId64 ": must be from 1 to %d", d->vocab, INT32_MAX);
	if (d->vocab < known->vocab)
		return error_set(e, CODE_DATA,
				 "%s: holds ids up to %" PRId64 ", beyond model.vocab = %" PRId64 ": it must be at "
				 "least %" PRId64,
				 d->streams[0].shards[0].path, known->vocab - 1, d->vocab, known->vocab);
	return true;
}

static bool settle_end_of_document(struct data *d, const struct data_settings *s, const struct shard_facts *known,
				   struct error *e)
{
	int64_t id = known->end_of_document;
	if (given(s->end_of_document)) {
		if (!text_to_count(s->end_of_document, &id) || id < 0 || id >= d->vocab)
			return error_set(e, CODE_USAGE,
					 "data.end_of_document = %s: must be a token id from 0 to %" PRId64,
					 s->end_of_document, d->vocab - 1);
		if (known->end_of_document >= 0 && id != known->end_of_document)
			return error_set(e, CODE_USAGE,
					 "data.end_of_document = %s, but the data's tokenizer has %" PRId64
					 ": leave the setting out",
					 s->end_of_document, known->end_of_document);
	}
	d->end_of_document = id;
	d->mask_end_of_document = s->mask_end_of_document;
	if (s->mask_end_of_document && id < 0)
		return error_set(e, CODE_USAGE,
				 "data.mask_end_of_document is on, but the end-of-document token is not known: "
				 "give data.end_of_document");
	return true;
}

/* "99,1" as the share of train. */
static bool read_split(const char *text, double *share, struct error *e)
{
	char left[32];
	double train, valid;
	size_t n = strcspn(text, ",");
	if (n < sizeof left && text[n] == ',') {
		const char *right = text + n + 1 + strspn(text + n + 1, " \t");
		memcpy(left, text, n);
		left[n] = '\0';
		if (text_to_number(left, &train) && text_to_number(right, &valid) && train > 0 && valid > 0) {
			*share = train / (train + valid);
			return true;
		}
	}
	return error_set(e, CODE_USAGE,
			 "data.split = %s: must be the shares of train and valid, two numbers above 0, such as "
			 "99,1",
			 text);
}

static struct data_part part_of(const struct data *d, const struct shard_stream *t, int64_t begin, int64_t end)
{
	int64_t tokens = end - begin;
	return (struct data_part){t, begin, tokens, tokens > 0 ? (tokens - 1) / d->sequence : 0};
}

/* Cuts a source in two: at a document, where documents are known, else at a window. */
static bool cut_source(struct data *d, int i, double share, struct error *e)
{
	const struct shard_stream *t = &d->streams[i];
	int64_t cut, shared = 0, target = (int64_t)((double)t->tokens * share);
	if (t->tokens < 2 * d->sequence + 1)
		return error_set(e, CODE_DATA,
				 "%s: %" PRId64 " tokens are too few for data.split: train and valid need a window "
				 "of %" PRId64 " each",
				 t->shards[0].path, t->tokens, d->sequence + 1);
	if (!shard_stream_cut(t, target < t->tokens ? target : t->tokens - 1, d->end_of_document, &cut, e))
		return false;
	if (cut < 0) {
		int64_t windows = (t->tokens - 1) / d->sequence, first = (int64_t)((double)windows * share);
		cut = (first < 1 ? 1 : first < windows ? first : windows - 1) * d->sequence;
		shared = 1; /* neighbouring windows share a token here as everywhere */
	}
	d->train[i] = part_of(d, t, 0, cut + shared);
	d->valid[i] = part_of(d, t, cut, t->tokens);
	return true;
}

static bool need_window(const struct data *d, const struct data_part *p, const char *what, struct error *e)
{
	if (p->windows > 0)
		return true;
	return error_set(e, CODE_DATA,
			 "%s: %" PRId64 " tokens for %s from token %" PRId64 " on: fewer than one window of "
			 "sequence + 1 = %" PRId64,
			 p->stream->shards[0].path, p->tokens, what, p->begin, d->sequence + 1);
}

/* Which windows are train and which valid, and their sums. */
static bool lay_out(struct data *d, const struct data_settings *s, struct error *e)
{
	bool split = given(s->split);
	double share = 1;
	if (split && !read_split(s->split, &share, e))
		return false;
	for (int i = 0; i < d->sources; i++) {
		const struct shard_stream *t = &d->streams[i];
		d->train[i] = part_of(d, t, 0, t->tokens);
		if ((split && !cut_source(d, i, share, e)) || !need_window(d, &d->train[i], "train", e))
			return false;
		d->tokens += d->train[i].tokens;
		d->windows += d->train[i].windows;
		d->documents = t->documents < 0 || d->documents < 0 ? -1 : d->documents + t->documents;
	}
	d->valid_parts = split ? d->sources : given(s->valid);
	if (given(s->valid))
		d->valid[0] = part_of(d, &d->streams[d->sources], 0, d->streams[d->sources].tokens);
	for (int i = 0; i < d->valid_parts; i++) {
		if (!need_window(d, &d->valid[i], "valid", e))
			return false;
		d->valid_windows += d->valid[i].windows;
	}
	return true;
}

bool data_open(struct data *d, const struct data_settings *s, uint64_t seed, int64_t sequence, int64_t vocab,
	       struct error *e)
{
	struct shard_facts known;
	check(sequence >= 1);
	*d = (struct data){.seed = seed, .sequence = sequence};
	d->window = zeroed(sequence + 1, sizeof *d->window);
	if (open_streams(d, s, e) && gather_facts(d, s->tokenizer, &known, e) && settle_vocab(d, &known, vocab, e) &&
	    settle_end_of_document(d, s, &known, e) && lay_out(d, s, e))
		return true;
	data_close(d);
	return false;
}

void data_close(struct data *d)
{
	if (!d)
		return;
	for (int i = 0; d->streams && i <= d->sources; i++)
		shard_stream_close(&d->streams[i]);
	blend_finish(&d->blend);
	free(d->streams);
	free(d->train);
	free(d->valid);
	free(d->window);
	*d = (struct data){0};
}

struct data_place data_find(struct data *d, int64_t sample)
{
	int source = blend_source(&d->blend, sample);
	int64_t taken = d->blend.taken[source], windows = d->train[source].windows, epoch = taken / windows;
	return (struct data_place){source, epoch, order_window(d->seed, source, epoch, windows, taken % windows)};
}

static bool read_window(struct data *d, const struct data_part *p, int64_t window, int32_t *inputs, int32_t *targets,
			struct error *e)
{
	size_t n = (size_t)d->sequence;
	if (!shard_stream_read(p->stream, p->begin + window * d->sequence, d->sequence + 1, d->vocab, d->window, e))
		return false;
	memcpy(inputs, d->window, n * sizeof *inputs);
	memcpy(targets, d->window + 1, n * sizeof *targets);
	for (size_t i = 0; d->mask_end_of_document && i < n; i++)
		if (inputs[i] == d->end_of_document)
			targets[i] = -1;
	return true;
}

bool data_read(struct data *d, int64_t sample, int32_t *inputs, int32_t *targets, struct error *e)
{
	struct data_place at = data_find(d, sample);
	return read_window(d, &d->train[at.source], at.window, inputs, targets, e);
}

bool data_read_valid(struct data *d, int64_t window, int32_t *inputs, int32_t *targets, struct error *e)
{
	const struct data_part *p = d->valid;
	check(window >= 0 && window < d->valid_windows);
	for (; window >= p->windows; p++)
		window -= p->windows;
	return read_window(d, p, window, inputs, targets, e);
}

void data_taken(struct data *d, int64_t samples, int64_t *taken)
{
	blend_seek(&d->blend, samples);
	memcpy(taken, d->blend.taken, (size_t)d->sources * sizeof *taken);
}

bool data_check_taken(struct data *d, int64_t samples, const int64_t *taken, int count, struct error *e)
{
	if (count != d->sources)
		return error_set(e, CODE_DATA, "the data has %d sources, the checkpoint was made with %d", d->sources,
				 count);
	blend_seek(&d->blend, samples);
	for (int i = 0; i < count; i++)
		if (taken[i] != d->blend.taken[i])
			return error_set(e, CODE_DATA,
					 "after %" PRId64 " samples source %d (%s) has given %" PRId64 ", but in the "
					 "checkpoint %" PRId64 ": the weights have changed",
					 samples, i + 1, d->streams[i].shards[0].path, d->blend.taken[i], taken[i]);
	return true;
}

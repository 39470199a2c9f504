#include "commands/inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "train/shard.h"

enum { CHUNK = 1 << 20 }; /* bytes read at once */
enum { COUNTED_VOCAB = 1 << 24 }; /* the largest vocabulary whose ids are counted */

/* The mean loss, in nats a token, of a model that knows how often each id occurs and nothing else: what a language model
 * must at least be below. */
static double unigram_loss(const int64_t *counts, int64_t vocab, int64_t tokens)
{
	double sum = 0;
	for (int64_t i = 0; i < vocab; i++)
		if (counts[i] > 0)
			sum -= (double)counts[i] * log((double)counts[i] / (double)tokens);
	return sum / (double)tokens;
}

/* Reads every id: their range, and the first that is not in 0 … vocab−1, which is the error too. */
static bool scan_ids(cJSON *out, const struct shard *s, int64_t vocab, struct error *e)
{
	int64_t size = (int64_t)shard_token_size(s->type), least = INT64_MAX, most = INT64_MIN, bad = -1, bad_id = 0;
	bool good = true;
	char *raw = malloc(CHUNK);
	int64_t *counts = vocab <= COUNTED_VOCAB ? calloc((size_t)vocab, sizeof *counts) : NULL;
	if (!raw || (!counts && vocab <= COUNTED_VOCAB))
		die(CODE_MACHINE, "out of memory to scan a shard");
	for (int64_t begin = 0; good && begin < s->tokens; begin += CHUNK / size) {
		int64_t n = s->tokens - begin < CHUNK / size ? s->tokens - begin : CHUNK / size;
		good = shard_read_raw(s, begin, n, raw, e);
		if (good)
			shard_token_range(s->type, raw, n, &least, &most);
		for (int64_t i = 0; good && bad < 0 && (least < 0 || most >= vocab) && i < n; i++) {
			bad_id = shard_token_at(s->type, raw, i);
			if (bad_id < 0 || bad_id >= vocab)
				bad = begin + i;
		}
		for (int64_t i = 0; good && bad < 0 && counts && i < n; i++)
			counts[shard_token_at(s->type, raw, i)]++;
	}
	free(raw);
	if (good && s->tokens > 0) {
		json_put_count(out, "least_id", least);
		json_put_count(out, "most_id", most);
		if (bad < 0 && counts)
			json_put_number(out, "unigram_loss", unigram_loss(counts, vocab, s->tokens));
	}
	free(counts);
	if (bad < 0 || !good)
		return good;
	int64_t byte = s->begin + bad * size;
	json_put_count(out, "first_bad_token", bad);
	json_put_count(out, "first_bad_byte", byte);
	json_put_count(out, "first_bad_id", bad_id);
	return error_set(e, CODE_DATA,
			 "%s: token %" PRId64 " (byte %" PRId64 "): id %" PRId64 " is not in the vocabulary, 0 to %" PRId64,
			 s->path, bad, byte, bad_id, vocab - 1);
}

/* Needs: shard_index_scan has found no fault. */
static void add_documents(cJSON *out, const struct shard_index *x)
{
	int64_t least = INT64_MAX, most = 0, begin = 0, size = (int64_t)shard_token_size(x->type);
	for (int64_t d = 1; d < x->boundaries; d++) {
		int64_t sequence = shard_index_document(x, d);
		int64_t end = sequence < x->sequences ? shard_index_offset(x, sequence) / size : x->tokens;
		least = end - begin < least ? end - begin : least;
		most = end - begin > most ? end - begin : most;
		begin = end;
	}
	json_put_count(out, "sequences", x->sequences);
	json_put_count(out, "documents", x->boundaries - 1);
	if (x->boundaries > 1) {
		json_put_count(out, "shortest_document", least);
		json_put_count(out, "longest_document", most);
	}
}

static void add_facts(cJSON *out, const struct shard_facts *f)
{
	if (f->vocab == 0)
		return;
	json_put_text(out, "tokenizer", f->tokenizer);
	json_put_count(out, "vocab_size", f->vocab);
	if (f->end_of_document >= 0)
		json_put_count(out, "end_of_document", f->end_of_document);
}

/* As one format. */
static bool describe(cJSON *out, const char *path, enum shard_format format, struct error *e)
{
	struct shard s;
	if (!shard_open(&s, path, format, e))
		return false;
	json_put_text(out, "format", shard_format_name(s.format));
	json_put_text(out, "type", shard_token_name(s.type));
	json_put_count(out, "tokens", s.tokens);
	bool good = s.format != SHARD_MEGATRON || shard_index_scan(&s.index, e);
	if (good && s.format == SHARD_MEGATRON)
		add_documents(out, &s.index);
	add_facts(out, &s.facts);
	good = good && scan_ids(out, &s, s.facts.vocab ? s.facts.vocab : (int64_t)INT32_MAX + 1, e);
	shard_close(&s);
	return good;
}

/* Nothing says what the ids are: both types, for a person to choose. A file of odd size is neither. */
static bool describe_headerless(cJSON *out, const char *path, struct error *e)
{
	struct error not_u32;
	json_put_text(out, "format", "headerless");
	cJSON *u32 = json_put_object(NULL, NULL);
	if (!describe(json_put_object(out, "u16"), path, SHARD_U16, e)) {
		cJSON_Delete(u32);
		return false;
	}
	describe(u32, path, SHARD_U32, &not_u32);
	if (u32->child)
		json_put(out, "u32", u32);
	else
		cJSON_Delete(u32);
	return true;
}

bool inspect_shard(cJSON *out, const char *path, struct error *e)
{
	char found[PATH_ROOM];
	enum shard_format format;
	json_put_text(out, "kind", "shard");
	if (!shard_find(path, SHARD_AUTO, found, e) || !shard_recognise(found, &format, e))
		return false;
	json_put_text(out, "path", found);
	return format == SHARD_AUTO ? describe_headerless(out, found, e) : describe(out, found, format, e);
}

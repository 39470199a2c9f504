#include "commands/inspect_shard.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "train/shard.h"

enum { CHUNK = 1 << 20 }; /* bytes read at once */

/* cJSON would print a large count as 1e+15. */
static void add_count(cJSON *object, const char *name, int64_t value)
{
	char digits[24];
	snprintf(digits, sizeof digits, "%" PRId64, value);
	cJSON_AddRawToObject(object, name, digits);
}

/* Reads every id: their range, and the first that is not in 0 … vocab−1. On a bad one *e says so, and *good is
 * false. */
static bool scan_ids(const struct shard *s, int64_t vocab, cJSON *object, bool *good, struct error *e)
{
	int64_t size = (int64_t)shard_token_size(s->type), least = INT64_MAX, most = INT64_MIN, bad = -1, bad_id = 0;
	char *raw = malloc(CHUNK);
	if (!raw)
		die(CODE_MACHINE, "out of memory to scan a shard");
	for (int64_t begin = 0; begin < s->tokens; begin += CHUNK / size) {
		int64_t n = s->tokens - begin < CHUNK / size ? s->tokens - begin : CHUNK / size;
		if (!shard_read_raw(s, begin, n, raw, e)) {
			free(raw);
			return false;
		}
		shard_token_range(s->type, raw, n, &least, &most);
		for (int64_t i = 0; bad < 0 && (least < 0 || most >= vocab) && i < n; i++) {
			int64_t id = shard_token_at(s->type, raw, i);
			if (id < 0 || id >= vocab) {
				bad = begin + i;
				bad_id = id;
			}
		}
	}
	free(raw);
	if (s->tokens > 0) {
		add_count(object, "least_id", least);
		add_count(object, "most_id", most);
	}
	*good = bad < 0;
	if (*good)
		return true;
	int64_t byte = s->begin + bad * size;
	add_count(object, "first_bad_token", bad);
	add_count(object, "first_bad_byte", byte);
	add_count(object, "first_bad_id", bad_id);
	error_set(e, CODE_DATA,
		  "%s: token %" PRId64 " (byte %" PRId64 "): id %" PRId64 " is not in the vocabulary, 0 to %" PRId64,
		  s->path, bad, byte, bad_id, vocab - 1);
	return true;
}

/* Needs: shard_index_scan has found no fault. */
static void add_documents(const struct shard_index *x, cJSON *object)
{
	int64_t least = INT64_MAX, most = 0, last = 0, size = (int64_t)shard_token_size(x->type);
	int64_t documents = x->boundaries - 1;
	for (int64_t d = 1; d <= documents; d++) {
		int64_t sequence = shard_index_document(x, d);
		int64_t end = sequence < x->sequences ? shard_index_offset(x, sequence) / size : x->tokens,
			n = end - last;
		least = n < least ? n : least;
		most = n > most ? n : most;
		last = end;
	}
	add_count(object, "sequences", x->sequences);
	add_count(object, "documents", documents);
	if (documents > 0) {
		add_count(object, "shortest_document", least);
		add_count(object, "longest_document", most);
	}
}

static void add_facts(const struct shard_facts *f, cJSON *object)
{
	if (f->vocab == 0)
		return;
	cJSON_AddStringToObject(object, "tokenizer", f->tokenizer);
	add_count(object, "vocab_size", f->vocab);
	if (f->end_of_document >= 0)
		add_count(object, "end_of_document", f->end_of_document);
}

/* Opens the shard as `format` and describes it. False with nothing to print; *good: false when an id is bad. */
static bool describe(const char *path, enum shard_format format, cJSON *object, bool *good, struct error *e)
{
	struct shard s;
	if (!shard_open(&s, path, format, e))
		return false;
	bool whole = s.format != SHARD_MEGATRON || shard_index_scan(&s.index, e);
	if (whole) {
		cJSON_AddStringToObject(object, "path", s.path);
		cJSON_AddStringToObject(object, "format", shard_format_name(s.format));
		cJSON_AddStringToObject(object, "type", shard_token_name(s.type));
		add_count(object, "tokens", s.tokens);
		if (s.format == SHARD_MEGATRON)
			add_documents(&s.index, object);
		add_facts(&s.facts, object);
		whole = scan_ids(&s, s.facts.vocab ? s.facts.vocab : (int64_t)INT32_MAX + 1, object, good, e);
	}
	shard_close(&s);
	return whole;
}

static void print_lines(const cJSON *object)
{
	for (const cJSON *item = object->child; item; item = item->next)
		log_info("%-18s %s", item->string, item->valuestring);
}

static void print_json(const cJSON *value)
{
	char *text = cJSON_PrintUnformatted(value);
	if (!text)
		die(CODE_MACHINE, "out of memory to print a shard");
	log_info("%s", text);
	cJSON_free(text);
}

/* Nothing says what the ids are: shows both types, for a person to choose. A file of odd size is neither. */
static bool describe_headerless(const char *path, cJSON *u16, cJSON *u32, struct error *e)
{
	struct error not_u32;
	bool good; /* no id is bad where no vocabulary is known */
	describe(path, SHARD_U32, u32, &good, &not_u32);
	return describe(path, SHARD_U16, u16, &good, e);
}

static bool print_headerless(const char *path, bool json, struct error *e)
{
	cJSON *both = cJSON_CreateObject(), *u16 = cJSON_AddObjectToObject(both, "u16");
	cJSON *u32 = cJSON_AddObjectToObject(both, "u32");
	bool good = describe_headerless(path, u16, u32, e);
	if (good && json) {
		print_json(both);
	} else if (good) {
		log_info("neither index nor magic: as data.format = u16 this is");
		print_lines(u16);
		log_info(u32->child ? "and as data.format = u32"
				    : "and it cannot be u32: its size is not a multiple of 4");
		print_lines(u32);
	}
	cJSON_Delete(both);
	return good;
}

bool inspect_shard_print(const char *path, bool json, struct error *e)
{
	char found[PATH_ROOM];
	enum shard_format format;
	bool good = true;
	if (!shard_find(path, SHARD_AUTO, found, e) || !shard_recognise(found, &format, e))
		return false;
	if (format == SHARD_AUTO)
		return print_headerless(found, json, e);
	cJSON *object = cJSON_CreateObject();
	bool described = describe(found, format, object, &good, e);
	if (described && json)
		print_json(object);
	else if (described)
		print_lines(object);
	cJSON_Delete(object);
	return described && good;
}

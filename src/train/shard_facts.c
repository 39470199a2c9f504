#include "train/shard_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

struct shard_facts shard_facts_none(void)
{
	return (struct shard_facts){.end_of_document = -1, .documents = -1, .tokens = -1};
}

/* A whole number least … most into *out, which keeps its value when there is no such member or it is null. */
static bool whole(const cJSON *object, const char *name, int64_t least, int64_t most, int64_t *out, const char *path,
		  struct error *e)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
	int64_t value;
	if (!item || cJSON_IsNull(item))
		return true;
	if (!json_is_count(item, &value) || value < least || value > most)
		return error_set(e, CODE_DATA, "%s: %s must be a whole number from %" PRId64 " to %" PRId64, path, name,
				 least, most);
	*out = value;
	return true;
}

static bool read_members(struct shard_facts *f, const cJSON *object, const char *path, struct error *e)
{
	const int64_t exact = INT64_C(1) << 53; /* beyond it a JSON number is not exact */
	if (!whole(object, "vocab_size", 1, INT32_MAX, &f->vocab, path, e))
		return false;
	if (f->vocab == 0)
		return error_set(e, CODE_DATA, "%s: no vocab_size: not what `mtrain tokenize` writes beside a shard",
				 path);
	const cJSON *tokenizer = cJSON_GetObjectItemCaseSensitive(object, "tokenizer");
	if (tokenizer && !cJSON_IsNull(tokenizer)) {
		if (!cJSON_IsString(tokenizer) || strlen(tokenizer->valuestring) >= sizeof f->tokenizer)
			return error_set(e, CODE_DATA, "%s: tokenizer must be a name shorter than %d bytes", path,
					 SHARD_TOKENIZER);
		strcpy(f->tokenizer, tokenizer->valuestring);
	}
	return whole(object, "end_of_document", 0, f->vocab - 1, &f->end_of_document, path, e) &&
	       whole(object, "documents", 0, exact, &f->documents, path, e) &&
	       whole(object, "tokens", 0, exact, &f->tokens, path, e);
}

bool shard_facts_read(struct shard_facts *f, const char *path, struct error *e)
{
	char *text;
	size_t size;
	*f = shard_facts_none();
	if (!file_read(path, &text, &size, CODE_DATA, e))
		return false;
	cJSON *object = json_parse(path, text, size, CODE_DATA, e);
	free(text);
	if (!object)
		return false;
	if (!cJSON_IsObject(object)) {
		cJSON_Delete(object);
		return error_set(e, CODE_DATA,
				 "%s: not a JSON object: not what `mtrain tokenize` writes beside a shard", path);
	}
	bool good = read_members(f, object, path, e);
	cJSON_Delete(object);
	return good;
}

char *shard_facts_text(const struct shard_facts *f)
{
	cJSON *object = cJSON_CreateObject();
	cJSON_AddStringToObject(object, "tokenizer", f->tokenizer);
	json_add_count(object, "vocab_size", f->vocab);
	if (f->end_of_document >= 0)
		json_add_count(object, "end_of_document", f->end_of_document);
	json_add_count(object, "documents", f->documents);
	json_add_count(object, "tokens", f->tokens);
	char *text = cJSON_PrintUnformatted(object);
	cJSON_Delete(object);
	size_t n = text ? strlen(text) : 0;
	char *line = text ? realloc(text, n + 2) : NULL;
	if (!line)
		die(CODE_MACHINE, "out of memory for the facts of a shard");
	memcpy(line + n, "\n", 2);
	return line;
}

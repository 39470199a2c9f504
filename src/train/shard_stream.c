#include "train/shard_stream.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *memory)
{
	if (!memory)
		die(CODE_MACHINE, "out of memory for the list of shards");
	return memory;
}

static bool add_shard(struct shard_stream *t, const char *path, enum shard_format format, struct error *e)
{
	if (t->count == t->room) {
		t->room = t->room ? 2 * t->room : 4;
		t->shards = must(realloc(t->shards, (size_t)t->room * sizeof *t->shards));
	}
	if (!shard_open(&t->shards[t->count], path, format, e))
		return false;
	t->count++;
	return true;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool ends_with(const char *text, const char *ending)
{
	size_t n = strlen(text), m = strlen(ending);
	return n >= m && strcmp(text + n - m, ending) == 0;
}

/* The paths of the shards that a pattern matches, sorted, each once: PREFIX* matches both halves of a pair and its
 * facts, PREFIX? only what it names, so the pattern is tried with and without .bin behind it. */
static bool expand(const char *pattern, enum shard_format format, char ***paths, size_t *count, struct error *e)
{
	char found[PATH_ROOM], with_bin[PATH_ROOM];
	glob_t g;
	int result = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &g);
	if ((result == 0 || result == GLOB_NOMATCH) && strlen(pattern) + sizeof ".bin" <= PATH_ROOM) {
		strcpy(with_bin, pattern);
		strcat(with_bin, ".bin");
		int more = glob(with_bin, GLOB_ERR | GLOB_NOSORT | (result == 0 ? GLOB_APPEND : 0), NULL, &g);
		result = more == GLOB_NOMATCH ? result : more;
	}
	if (result != 0)
		return error_set(e, CODE_DATA, "%s: %s", pattern,
				 result == GLOB_NOMATCH
					 ? "no file matches this pattern"
					 : "cannot be searched: a folder in it is missing or unreadable");
	*paths = must(calloc(g.gl_pathc, sizeof **paths));
	*count = 0;
	bool good = true;
	for (size_t i = 0; i < g.gl_pathc && good; i++) {
		if (ends_with(g.gl_pathv[i], ".json"))
			continue;
		good = shard_find(g.gl_pathv[i], format, found, e);
		if (good)
			(*paths)[(*count)++] = must(strdup(found));
	}
	globfree(&g);
	qsort(*paths, *count, sizeof **paths, by_bytes);
	if (good && *count == 0)
		good = error_set(e, CODE_DATA, "%s: matches only .json files, which are no shards", pattern);
	return good;
}

static bool add_pattern(struct shard_stream *t, const char *pattern, enum shard_format format, struct error *e)
{
	char **paths = NULL;
	size_t count = 0;
	bool good = expand(pattern, format, &paths, &count, e);
	for (size_t i = 0; i < count && good; i++)
		if (i == 0 || strcmp(paths[i - 1], paths[i]) != 0)
			good = add_shard(t, paths[i], format, e);
	for (size_t i = 0; i < count; i++)
		free(paths[i]);
	free(paths);
	return good;
}

static bool add_name(struct shard_stream *t, const char *name, enum shard_format format, struct error *e)
{
	char path[PATH_ROOM];
	if (shard_find(name, format, path, e))
		return add_shard(t, path, format, e);
	return strpbrk(name, "*?[") && add_pattern(t, name, format, e);
}

bool shard_stream_open(struct shard_stream *t, const char *const *names, int count, enum shard_format format,
		       struct error *e)
{
	*t = (struct shard_stream){0};
	for (int i = 0; i < count; i++)
		if (!add_name(t, names[i], format, e)) {
			shard_stream_close(t);
			return false;
		}
	t->begins = must(calloc((size_t)t->count + 1, sizeof *t->begins));
	for (int i = 0; i < t->count; i++) {
		int64_t documents = shard_documents(&t->shards[i]);
		t->documents = documents < 0 || t->documents < 0 ? -1 : t->documents + documents;
		t->begins[i + 1] = t->begins[i] + t->shards[i].tokens;
	}
	t->tokens = t->begins[t->count];
	return true;
}

void shard_stream_close(struct shard_stream *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->count; i++)
		shard_close(&t->shards[i]);
	free(t->shards);
	free(t->begins);
	*t = (struct shard_stream){0};
}

/* The shard that holds token p. */
static int shard_of(const struct shard_stream *t, int64_t p)
{
	int i = 0, beyond = t->count;
	while (beyond - i > 1) {
		int middle = i + (beyond - i) / 2;
		if (t->begins[middle] <= p)
			i = middle;
		else
			beyond = middle;
	}
	return i;
}

bool shard_stream_read(const struct shard_stream *t, int64_t begin, int64_t count, int64_t vocab, int32_t *out,
		       struct error *e)
{
	check(begin >= 0 && count >= 1 && count <= t->tokens - begin);
	for (int i = shard_of(t, begin); count > 0; i++) {
		int64_t here = t->begins[i + 1] - begin;
		int64_t n = count < here ? count : here;
		if (n == 0)
			continue;
		if (!shard_read(&t->shards[i], begin - t->begins[i], n, vocab, out, e))
			return false;
		begin += n;
		count -= n;
		out += n;
	}
	return true;
}

/* As shard_index_around, by the tokens that close a document: looks back from target and forward from it. */
static bool around_by_token(const struct shard *s, int64_t target, int64_t id, int64_t *before, int64_t *after,
			    struct error *e)
{
	uint64_t raw[8192];
	int64_t room = (int64_t)(sizeof raw / shard_token_size(s->type)), first, last;
	*before = 0;
	*after = s->tokens;
	for (int64_t end = target; end > 0; end -= room) {
		int64_t begin = end > room ? end - room : 0;
		if (!shard_read_raw(s, begin, end - begin, raw, e))
			return false;
		shard_token_find(s->type, raw, end - begin, id, &first, &last);
		if (last >= 0) {
			*before = begin + last + 1;
			break;
		}
	}
	for (int64_t begin = target; begin < s->tokens; begin += room) {
		int64_t n = s->tokens - begin < room ? s->tokens - begin : room;
		if (!shard_read_raw(s, begin, n, raw, e))
			return false;
		shard_token_find(s->type, raw, n, id, &first, &last);
		if (first >= 0) {
			*after = begin + first + 1;
			break;
		}
	}
	return true;
}

bool shard_stream_cut(const struct shard_stream *t, int64_t target, int64_t end_of_document, int64_t *cut,
		      struct error *e)
{
	check(target >= 0 && target < t->tokens);
	int i = shard_of(t, target);
	const struct shard *s = &t->shards[i];
	int64_t before, after, local = target - t->begins[i];
	*cut = -1;
	if (s->format == SHARD_MEGATRON) {
		if (!shard_index_around(&s->index, local, &before, &after, e))
			return false;
	} else if (end_of_document < 0) {
		return true;
	} else if (!around_by_token(s, local, end_of_document, &before, &after, e)) {
		return false;
	}
	if (t->begins[i] + before > 0)
		*cut = t->begins[i] + before;
	else if (t->begins[i] + after < t->tokens)
		*cut = t->begins[i] + after;
	return true;
}

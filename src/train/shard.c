#include "train/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

enum { LLMC_HEADER = 1024, LLMC_U16_MAGIC = 20240520, LLMC_U32_MAGIC = 20240801 };

static const char *const format_names[SHARD_FORMATS] = {"auto", "megatron", "llmc", "u16", "u32"};

const char *shard_format_name(enum shard_format f)
{
	return format_names[f];
}

bool shard_format_of(const char *text, enum shard_format *f, struct error *e)
{
	*f = SHARD_AUTO;
	if (!text || !*text)
		return true;
	for (int i = 0; i < SHARD_FORMATS; i++)
		if (strcmp(text, format_names[i]) == 0) {
			*f = (enum shard_format)i;
			return true;
		}
	const char *nearest = text_nearest(text, format_names, SHARD_FORMATS);
	return error_set(e, CODE_USAGE, "data.format = %s: must be auto, megatron, llmc, u16 or u32%s%s%s", text,
			 nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

/* path without its ending, then another ending. False: path has another ending, or it does not fit. */
static bool with_ending(char out[PATH_ROOM], const char *path, const char *ending, const char *other)
{
	size_t n = strlen(path), m = strlen(ending);
	if (n < m || strcmp(path + n - m, ending) != 0)
		return false;
	return snprintf(out, PATH_ROOM, "%.*s%s", (int)(n - m), path, other) < PATH_ROOM;
}

bool shard_find(const char *name, enum shard_format format, char out[PATH_ROOM], struct error *e)
{
	static const char *const endings[] = {"", ".bin", ".idx"};
	if (format == SHARD_AUTO || format == SHARD_MEGATRON) {
		for (int i = 0; i < 3; i++)
			if (with_ending(out, name, endings[i], ".idx") && file_exists(out))
				return with_ending(out, name, endings[i], ".bin");
		if (format == SHARD_MEGATRON)
			return error_set(e, CODE_DATA,
					 "%s: there is no %s.idx: a Megatron shard is PREFIX.bin and PREFIX.idx, and "
					 "is named by its PREFIX",
					 name, name);
	}
	for (int i = 0; i < 2; i++)
		if (with_ending(out, name, "", endings[i]) && file_exists(out))
			return true;
	return error_set(e, CODE_DATA, "%s: no such file, nor is there %s.bin%s%s%s", name, name,
			 format == SHARD_AUTO ? " with " : "", format == SHARD_AUTO ? name : "",
			 format == SHARD_AUTO ? ".idx" : "");
}

/* A source may be thousands of files, more than the soft limit that shells set: raise it once to the hard one. */
static int open_for_reading(const char *path)
{
	int fd = open(path, FILE_READING);
	struct rlimit limit;
	if (fd >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
		return fd;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
		errno = EMFILE;
		return -1;
	}
	return open(path, FILE_READING);
}

static bool open_megatron(struct shard *s, int64_t bytes, struct error *e)
{
	char facts[PATH_ROOM];
	if (!s->index_path)
		return error_set(e, CODE_DATA, "%s: the ids of a Megatron shard are in PREFIX.bin", s->path);
	if (!file_map_open(&s->map, s->index_path, CODE_DATA, e) ||
	    !shard_index_init(&s->index, s->index_path, s->map.data, s->map.size, bytes, e))
		return false;
	s->type = s->index.type;
	s->tokens = s->index.tokens;
	if (!with_ending(facts, s->path, ".bin", ".json") || !file_exists(facts))
		return true;
	if (!shard_facts_read(&s->facts, facts, e))
		return false;
	if ((s->facts.tokens >= 0 && s->facts.tokens != s->tokens) ||
	    (s->facts.documents >= 0 && s->facts.documents != shard_documents(s)))
		return error_set(e, CODE_DATA,
				 "%s: counts %" PRId64 " documents and %" PRId64 " tokens, but %s has %" PRId64
				 " and %" PRId64 ": they do not belong together",
				 facts, s->facts.documents, s->facts.tokens, s->path, shard_documents(s), s->tokens);
	return true;
}

static bool open_llmc(struct shard *s, int64_t bytes, struct error *e)
{
	int32_t header[3] = {0};
	if (!file_pread(s->fd, header, bytes < (int64_t)sizeof header ? (size_t)bytes : sizeof header, 0))
		return error_set(e, CODE_MACHINE, "%s: %s", s->path, errno ? strerror(errno) : "became shorter");
	int64_t magic = shard_token_at(TOKEN_I32, header, 0), version = shard_token_at(TOKEN_I32, header, 1);
	if (magic != LLMC_U16_MAGIC && magic != LLMC_U32_MAGIC)
		return error_set(e, CODE_DATA, "%s: does not begin with an llm.c magic (%d for u16, %d for u32)",
				 s->path, LLMC_U16_MAGIC, LLMC_U32_MAGIC);
	s->type = magic == LLMC_U16_MAGIC ? TOKEN_U16 : TOKEN_U32;
	s->begin = LLMC_HEADER;
	s->tokens = shard_token_at(TOKEN_I32, header, 2);
	int64_t right = magic == LLMC_U16_MAGIC ? 1 : 7, size = (int64_t)shard_token_size(s->type);
	if (bytes < LLMC_HEADER)
		return error_set(e, CODE_DATA, "%s: %" PRId64 " bytes long: an llm.c header has %d: truncated", s->path,
				 bytes, LLMC_HEADER);
	if (version != right)
		return error_set(e, CODE_DATA,
				 "%s: byte 4: version %" PRId64 " of an llm.c file with magic %" PRId64
				 ": only %" PRId64 " is known",
				 s->path, version, magic, right);
	if (s->tokens < 0 || bytes != LLMC_HEADER + s->tokens * size)
		return error_set(e, CODE_DATA,
				 "%s: byte 8 counts %" PRId64 " tokens of %" PRId64 " bytes behind a header of %d, "
				 "but the file is %" PRId64 " bytes long: truncated, or a wrong count",
				 s->path, s->tokens, size, LLMC_HEADER, bytes);
	return true;
}

static bool open_headerless(struct shard *s, int64_t bytes, struct error *e)
{
	s->type = s->format == SHARD_U16 ? TOKEN_U16 : TOKEN_U32;
	int64_t size = (int64_t)shard_token_size(s->type);
	s->tokens = bytes / size;
	if (bytes % size != 0)
		return error_set(e, CODE_DATA,
				 "%s: %" PRId64 " bytes long, not a multiple of %" PRId64 ": truncated, or not %s",
				 s->path, bytes, size, shard_token_name(s->type));
	return true;
}

/* Opens the file with the ids; its size into *bytes. */
static int open_ids(const char *path, int64_t *bytes, struct error *e)
{
	struct stat st;
	int fd = open_for_reading(path);
	if (fd < 0 || fstat(fd, &st) != 0) {
		error_set(e, CODE_DATA, "%s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		error_set(e, CODE_DATA, "%s: not a regular file", path);
	} else {
		*bytes = st.st_size;
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

bool shard_recognise(const char *path, enum shard_format *format, struct error *e)
{
	char index_path[PATH_ROOM];
	int32_t magic = 0;
	int64_t bytes;
	*format = SHARD_AUTO;
	if (with_ending(index_path, path, ".bin", ".idx") && file_exists(index_path)) {
		*format = SHARD_MEGATRON;
		return true;
	}
	int fd = open_ids(path, &bytes, e);
	if (fd < 0)
		return false;
	if (file_pread(fd, &magic, sizeof magic, 0)) {
		int64_t value = shard_token_at(TOKEN_I32, &magic, 0);
		if (value == LLMC_U16_MAGIC || value == LLMC_U32_MAGIC)
			*format = SHARD_LLMC;
	}
	close(fd);
	return true;
}

bool shard_open(struct shard *s, const char *path, enum shard_format format, struct error *e)
{
	char index_path[PATH_ROOM];
	int64_t bytes;
	if (format == SHARD_AUTO && !shard_recognise(path, &format, e))
		return false;
	if (format == SHARD_AUTO)
		return error_set(e, CODE_DATA,
				 "%s: neither a Megatron shard (no .idx beside it) nor an llm.c file (no magic): if it "
				 "holds ids and nothing else, say which: data.format = u16 (as nanoGPT writes) or u32",
				 path);
	*s = (struct shard){.path = strdup(path), .format = format, .facts = shard_facts_none()};
	if (with_ending(index_path, path, ".bin", ".idx"))
		s->index_path = strdup(index_path);
	s->fd = open_ids(path, &bytes, e);
	if (s->fd >= 0 && (format == SHARD_MEGATRON ? open_megatron(s, bytes, e)
			   : format == SHARD_LLMC   ? open_llmc(s, bytes, e)
						    : open_headerless(s, bytes, e)))
		return true;
	shard_close(s);
	return false;
}

void shard_close(struct shard *s)
{
	if (!s || !s->path)
		return;
	if (s->fd >= 0)
		close(s->fd);
	file_map_close(&s->map);
	free(s->index_path);
	free(s->path);
	*s = (struct shard){.fd = -1};
}

int64_t shard_documents(const struct shard *s)
{
	return s->format == SHARD_MEGATRON ? s->index.boundaries - 1 : -1;
}

bool shard_read_raw(const struct shard *s, int64_t begin, int64_t count, void *out, struct error *e)
{
	size_t size = shard_token_size(s->type);
	check(begin >= 0 && count >= 0 && count <= s->tokens - begin);
	int64_t from = s->begin + begin * (int64_t)size, bytes = count * (int64_t)size;
	if (file_pread(s->fd, out, (size_t)bytes, from))
		return true;
	if (errno)
		return error_set(e, CODE_MACHINE, "%s: bytes %" PRId64 " to %" PRId64 ": %s", s->path, from,
				 from + bytes, strerror(errno));
	return error_set(e, CODE_DATA,
			 "%s: ends in front of byte %" PRId64 ": it has become shorter since it was opened", s->path,
			 from + bytes);
}

bool shard_read(const struct shard *s, int64_t begin, int64_t count, int64_t vocab, int32_t *out, struct error *e)
{
	uint64_t raw[8192];
	int64_t size = (int64_t)shard_token_size(s->type), room = (int64_t)sizeof raw / size;
	if (s->format == SHARD_MEGATRON && !shard_index_check(&s->index, begin, count, e))
		return false;
	for (int64_t done = 0; done < count;) {
		int64_t n = count - done < room ? count - done : room;
		if (!shard_read_raw(s, begin + done, n, raw, e))
			return false;
		int64_t good = shard_token_decode(s->type, raw, n, vocab, out + done);
		if (good < n)
			return error_set(e, CODE_DATA,
					 "%s: token %" PRId64 " (byte %" PRId64 "): id %" PRId64 " is not in the "
					 "vocabulary, 0 to %" PRId64,
					 s->path, begin + done + good, s->begin + (begin + done + good) * size,
					 shard_token_at(s->type, raw, good), vocab - 1);
		done += n;
	}
	return true;
}

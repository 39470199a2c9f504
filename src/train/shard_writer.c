#include "train/shard_writer.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/shard_index.h"

static const char *const endings[SHARD_WRITER_FILES] = {".bin", ".idx", ".json"};

static bool failed(struct error *e, const char *path)
{
	return error_set(e, CODE_MACHINE, "%s: %s", path, strerror(errno));
}

static bool name_files(struct shard_writer *w, const char *prefix, struct error *e)
{
	const char *name = strrchr(prefix, '/');
	name = name ? name + 1 : prefix;
	size_t n = strlen(name);
	if (n == 0)
		return error_set(e, CODE_USAGE, "output %s: must be the PREFIX of file names, not a folder", prefix);
	for (int i = 0; i < SHARD_WRITER_FILES; i++) {
		size_t m = strlen(endings[i]);
		if (n > m && strcmp(name + n - m, endings[i]) == 0)
			return error_set(e, CODE_USAGE, "output %s: %s is put behind the PREFIX: say %.*s", prefix,
					 endings[i], (int)(strlen(prefix) - m), prefix);
		if (snprintf(w->path[i], PATH_ROOM, "%s%s", prefix, endings[i]) >= PATH_ROOM ||
		    snprintf(w->temp[i], PATH_ROOM, "%s%s.tmp", prefix, endings[i]) >= PATH_ROOM)
			return error_set(e, CODE_USAGE, "output %s: too long for a path", prefix);
	}
	return true;
}

static bool make_folder_of(const char *path, struct error *e)
{
	char folder[PATH_ROOM];
	const char *slash = strrchr(path, '/');
	if (!slash || slash == path)
		return true;
	snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
	return file_make_folder(folder, CODE_MACHINE, e);
}

/* Opens the temporary .bin, locked, so that a second writer cannot take the same temporary names; where locks are
 * not to be had (some network file systems) there is none. -1 with *e. */
static int open_locked(const char *path, struct error *e)
{
	for (;;) {
		struct stat mine, named;
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (fd < 0) {
			failed(e, path);
			return -1;
		}
		if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
			close(fd);
			error_set(e, CODE_USAGE, "%s: another process is writing it", path);
			return -1;
		}
		/* Between open and lock its writer may have finished and moved it into place: then it must not be
		 * touched. */
		if (fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino)
			return fd;
		close(fd);
	}
}

static bool open_files(struct shard_writer *w, struct error *e)
{
	w->bin = open_locked(w->temp[SHARD_WRITER_BIN], e);
	if (w->bin < 0)
		return false;
	if (ftruncate(w->bin, 0) != 0)
		return failed(e, w->temp[SHARD_WRITER_BIN]);
	w->index = fopen(w->temp[SHARD_WRITER_IDX], "w+e");
	if (!w->index || fseeko(w->index, SHARD_INDEX_HEADER, SEEK_SET) != 0)
		return failed(e, w->temp[SHARD_WRITER_IDX]);
	return true;
}

bool shard_writer_open(struct shard_writer *w, const char *prefix, enum shard_token type, struct error *e)
{
	*w = (struct shard_writer){.type = type, .bin = -1};
	if (!name_files(w, prefix, e) || !make_folder_of(prefix, e))
		return false;
	if (open_files(w, e))
		return true;
	if (w->bin >= 0) /* else the files are another writer's */
		shard_writer_abandon(w);
	return false;
}

int64_t shard_writer_add(struct shard_writer *w, int64_t length, bool goes_on)
{
	check(length >= 0 && length <= INT32_MAX && !(goes_on && w->sequences == 0));
	int64_t begin = w->tokens;
	uint32_t stored = htole32((uint32_t)length);
	fwrite(&stored, sizeof stored, 1, w->index); /* ferror tells at the end */
	if (goes_on) {
		if (w->joined_count == w->joined_room) {
			w->joined_room = w->joined_room ? 2 * w->joined_room : 16;
			w->joined = realloc(w->joined, (size_t)w->joined_room * sizeof *w->joined);
			if (!w->joined)
				die(CODE_MACHINE, "out of memory for the documents of a shard");
		}
		w->joined[w->joined_count++] = w->sequences;
	}
	w->tokens += length;
	w->sequences++;
	w->documents += !goes_on;
	return begin;
}

bool shard_writer_put(const struct shard_writer *w, int64_t begin, const void *raw, int64_t count, struct error *e)
{
	int64_t size = (int64_t)shard_token_size(w->type), bytes = count * size, offset = begin * size;
	const char *p = raw;
	while (bytes > 0) {
		ssize_t put = pwrite(w->bin, p, (size_t)bytes, offset);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return failed(e, w->temp[SHARD_WRITER_BIN]);
		p += put;
		bytes -= put;
		offset += put;
	}
	return true;
}

static void write_u64(FILE *f, int64_t value)
{
	uint64_t stored = htole64((uint64_t)value);
	fwrite(&stored, sizeof stored, 1, f);
}

/* Offsets and document boundaries, from the lengths that are already in the file; then the header. */
static bool complete_index(struct shard_writer *w, struct error *e)
{
	struct file_map map;
	FILE *f = w->index;
	if (fflush(f) != 0)
		return failed(e, w->temp[SHARD_WRITER_IDX]);
	if (!file_map_open(&map, w->temp[SHARD_WRITER_IDX], CODE_MACHINE, e))
		return false;
	int64_t size = (int64_t)shard_token_size(w->type), offset = 0;
	for (int64_t i = 0; i < w->sequences; i++) {
		write_u64(f, offset);
		offset += shard_token_at(TOKEN_I32, map.data + SHARD_INDEX_HEADER, i) * size;
	}
	file_map_close(&map);
	for (int64_t i = 0, j = 0; i <= w->sequences; i++) {
		if (j < w->joined_count && w->joined[j] == i)
			j++;
		else
			write_u64(f, i);
	}
	if (fseeko(f, 0, SEEK_SET) != 0)
		return failed(e, w->temp[SHARD_WRITER_IDX]);
	fwrite(shard_index_magic, sizeof shard_index_magic, 1, f);
	write_u64(f, SHARD_INDEX_VERSION);
	fputc((int)w->type, f);
	write_u64(f, w->sequences);
	write_u64(f, w->documents + 1);
	if (fflush(f) != 0 || fsync(fileno(f)) != 0)
		return failed(e, w->temp[SHARD_WRITER_IDX]);
	if (ferror(f)) /* an earlier write failed: its reason is gone */
		return error_set(e, CODE_MACHINE, "%s: could not be written whole", w->temp[SHARD_WRITER_IDX]);
	return true;
}

static bool write_facts(struct shard_writer *w, struct shard_facts *facts, struct error *e)
{
	facts->documents = w->documents;
	facts->tokens = w->tokens;
	char *text = shard_facts_text(facts);
	bool good = file_replace(w->temp[SHARD_WRITER_JSON], text, strlen(text), CODE_MACHINE, e);
	free(text);
	return good;
}

/* The old index goes first and the new one comes last: stopped between, there is no index, never a wrong one. */
static bool move_files(struct shard_writer *w, struct error *e)
{
	static const enum shard_writer_file order[] = {SHARD_WRITER_BIN, SHARD_WRITER_JSON, SHARD_WRITER_IDX};
	char folder[PATH_ROOM];
	if (unlink(w->path[SHARD_WRITER_IDX]) != 0 && errno != ENOENT)
		return failed(e, w->path[SHARD_WRITER_IDX]);
	for (int i = 0; i < SHARD_WRITER_FILES; i++)
		if (rename(w->temp[order[i]], w->path[order[i]]) != 0)
			return failed(e, w->path[order[i]]);
	const char *slash = strrchr(w->path[0], '/');
	snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - w->path[0] + 1) : 1, slash ? w->path[0] : ".");
	return file_sync_folder(folder) || failed(e, folder);
}

static void close_writer(struct shard_writer *w)
{
	if (w->index)
		fclose(w->index);
	if (w->bin >= 0)
		close(w->bin);
	free(w->joined);
	*w = (struct shard_writer){.bin = -1};
}

bool shard_writer_finish(struct shard_writer *w, struct shard_facts *facts, struct error *e)
{
	bool good = complete_index(w, e) && write_facts(w, facts, e) &&
		    (fsync(w->bin) == 0 || failed(e, w->temp[SHARD_WRITER_BIN])) && move_files(w, e);
	if (good)
		close_writer(w);
	else
		shard_writer_abandon(w);
	return good;
}

void shard_writer_abandon(struct shard_writer *w)
{
	for (int i = 0; i < SHARD_WRITER_FILES; i++)
		unlink(w->temp[i]);
	close_writer(w);
}

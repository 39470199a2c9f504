#include "shard_files.h"

#include <sys/stat.h>

#include "scratch.h"

static void *folder;

int shard_files_open(void **state)
{
	int result = scratch_open(state);
	folder = *state;
	return result;
}

int shard_files_close(void **state)
{
	folder = NULL;
	return scratch_close(state);
}

static void must(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	abort();
}

const char *scratch(const char *format, ...)
{
	static char paths[8][512];
	static int turn;
	char *path = paths[turn++ % 8];
	size_t n = (size_t)snprintf(path, 512, "%s/", (const char *)folder);
	va_list args;
	va_start(args, format);
	vsnprintf(path + n, 512 - n, format, args);
	va_end(args);
	for (char *slash = path + n; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		mkdir(path, 0777);
		*slash = '/';
	}
	return path;
}

void bytes_add(struct bytes *b, const void *data, size_t count)
{
	if (b->count + count >= b->room) {
		b->room = 2 * (b->count + count) + 64;
		b->data = realloc(b->data, b->room);
		must(b->data != NULL, "bytes");
	}
	memcpy(b->data + b->count, data, count);
	b->count += count;
}

void bytes_text(struct bytes *b, const char *text)
{
	bytes_add(b, text, strlen(text));
}

void bytes_number(struct bytes *b, int64_t value, int width)
{
	for (int i = 0; i < width; i++) {
		unsigned char byte = (unsigned char)((uint64_t)value >> 8 * i);
		bytes_add(b, &byte, 1);
	}
}

void bytes_free(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){0};
}

void bytes_write(struct bytes *b, const char *path)
{
	FILE *f = fopen(path, "wb");
	must(f && (b->count == 0 || fwrite(b->data, b->count, 1, f) == 1) && fclose(f) == 0, path);
	bytes_free(b);
}

struct bytes bytes_read(const char *path)
{
	struct bytes b = {0};
	char part[4096];
	size_t n;
	FILE *f = fopen(path, "rb");
	must(f != NULL, path);
	while ((n = fread(part, 1, sizeof part, f)) > 0)
		bytes_add(&b, part, n);
	fclose(f);
	return b;
}

void write_text(const char *path, const char *text)
{
	struct bytes b = {0};
	bytes_text(&b, text);
	bytes_write(&b, path);
}

struct bytes index_bytes(int code, int width, const int32_t *lengths, int64_t sequences, const int64_t *documents,
			 int64_t boundaries)
{
	struct bytes b = {0};
	bytes_add(&b, "MMIDIDX\0\0", 9);
	bytes_number(&b, 1, 8);
	bytes_number(&b, code, 1);
	bytes_number(&b, sequences, 8);
	bytes_number(&b, boundaries, 8);
	for (int64_t i = 0; i < sequences; i++)
		bytes_number(&b, lengths[i], 4);
	for (int64_t i = 0, offset = 0; i < sequences; offset += (int64_t)width * lengths[i++])
		bytes_number(&b, offset, 8);
	for (int64_t i = 0; i < boundaries; i++)
		bytes_number(&b, documents[i], 8);
	return b;
}

void write_ids(const char *path, int width, const int64_t *ids, int64_t count)
{
	struct bytes b = {0};
	for (int64_t i = 0; i < count; i++)
		bytes_number(&b, ids[i], width);
	bytes_write(&b, path);
}

void write_pair(const char *prefix, int code, int width, const int64_t *ids, int64_t count, const int32_t *lengths,
		int64_t sequences, const int64_t *documents, int64_t boundaries)
{
	char path[600];
	snprintf(path, sizeof path, "%s.bin", prefix);
	write_ids(path, width, ids, count);
	struct bytes b = index_bytes(code, width, lengths, sequences, documents, boundaries);
	snprintf(path, sizeof path, "%s.idx", prefix);
	bytes_write(&b, path);
}

bool exists(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

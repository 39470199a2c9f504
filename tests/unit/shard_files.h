/* shard_files.h: token shards for tests, written byte by byte and without the code under test. */
#ifndef MTRAIN_TESTS_SHARD_FILES_H
#define MTRAIN_TESTS_SHARD_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set-up and tear-down of a test program: one folder for all its files. */
int shard_files_open(void **state);
int shard_files_close(void **state);

/* The path of a name in that folder; folders on the way are made. Good until seven more calls. */
const char *scratch(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Bytes that grow. */
struct bytes {
	unsigned char *data;
	size_t count, room;
};
void bytes_add(struct bytes *b, const void *data, size_t count);
void bytes_text(struct bytes *b, const char *text);
void bytes_number(struct bytes *b, int64_t value, int width); /* little-endian */
void bytes_free(struct bytes *b);

/* Writes the file and frees the bytes. */
void bytes_write(struct bytes *b, const char *path);
struct bytes bytes_read(const char *path); /* of a file that must be there */

void write_text(const char *path, const char *text);

/* A Megatron index: S lengths, offsets as they follow from them, D document boundaries. */
struct bytes index_bytes(int code, int width, const int32_t *lengths, int64_t sequences, const int64_t *documents,
			 int64_t boundaries);

/* A Megatron pair at PREFIX of `count` ids: id i is ids[i]. */
void write_pair(const char *prefix, int code, int width, const int64_t *ids, int64_t count, const int32_t *lengths,
		int64_t sequences, const int64_t *documents, int64_t boundaries);

/* Ids and nothing else. */
void write_ids(const char *path, int width, const int64_t *ids, int64_t count);

bool exists(const char *path);

#endif

/* file.h: files as training needs them: read whole, mapped, written so that a crash leaves the old one or the new.
 *
 * Functions that can fail on what a user named fill a struct error with `code`, the path and the system's reason. */
#ifndef MTRAIN_BASE_FILE_H
#define MTRAIN_BASE_FILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PATH_ROOM = 4096 };

/* How a file that a user named is opened for reading: a pipe that nobody writes to is told from a file, not waited for. */
enum { FILE_READING = O_RDONLY | O_NONBLOCK | O_CLOEXEC };

/* The whole file in memory from malloc, with a NUL behind it that `size` does not count. A pipe or a device may have 16 MiB,
 * and ten seconds until there is more of it. */
bool file_read(const char *path, char **data, size_t *size, int code, struct error *e);

/* A read-only mapping of the whole file. An empty file maps to data NULL, size 0. */
struct file_map {
	const unsigned char *data;
	size_t size;
};
bool file_map_open(struct file_map *m, const char *path, int code, struct error *e);
void file_map_close(struct file_map *m);

/* Exactly `bytes` from `offset` of an open file; false (errno set, or 0 at the end of the file) otherwise. */
bool file_pread(int fd, void *out, size_t bytes, int64_t offset);

/* Exactly `bytes` to an open file at its position; false with errno. */
bool file_write_all(int fd, const void *data, size_t bytes);

/* Writes the file beside its place, syncs it, renames it over; where a link is, over what it leads to, which must be there. What is there and is no file,
 * say a device, is written into. */
bool file_replace(const char *path, const void *data, size_t bytes, int code, struct error *e);

/* mkdir -p. */
bool file_make_folder(const char *path, int code, struct error *e);

/* rm -r; a missing path is fine. */
bool file_remove_tree(const char *path, int code, struct error *e);

bool file_exists(const char *path);

/* fsync of a folder, so that a rename in it is on disk. */
bool file_sync_folder(const char *path);

/* dir + "/" + name into out[PATH_ROOM]; false if it does not fit. */
bool file_join(char out[PATH_ROOM], const char *dir, const char *name);

#endif

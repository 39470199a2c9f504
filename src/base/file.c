#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool system_error(struct error *e, int code, const char *path)
{
	return error_set(e, code, "%s: %s", path, strerror(errno));
}

/* What is no regular file has no size that stat knows, nor need it have an end or a writer. */
enum { STREAM_MOST = 1 << 24, STREAM_SECONDS = 10 };

/* The next bytes of a regular file or a stream: as read(2), but waits for a stream that has none yet, for so long. */
static ssize_t read_some(int fd, bool regular, char *out, size_t most)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (;;) {
		int ready = regular ? 1 : poll(&p, 1, STREAM_SECONDS * 1000);
		ssize_t got = ready > 0 ? read(fd, out, most) : -1;
		if (ready == 0)
			errno = ETIMEDOUT;
		if (got >= 0 || (errno != EINTR && errno != EAGAIN))
			return got;
		regular = false; /* some of /proc have to be waited for */
	}
}

static bool read_all(const char *path, int fd, char **data, size_t *size, int code, struct error *e)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return system_error(e, code, path);
	if (S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return system_error(e, code, path);
	}
	bool regular = S_ISREG(st.st_mode);
	size_t room = (size_t)st.st_size + 1, n = 0;
	ssize_t got = 1;
	char *buf = malloc(room);
	while (buf && (got = read_some(fd, regular, buf + n, room - n)) > 0) {
		n += (size_t)got;
		if (!regular && n > STREAM_MOST) {
			free(buf);
			return error_set(e, code, "%s: goes on after %d bytes, the most that is read from what is no regular file", path,
					 STREAM_MOST);
		}
		if (n == room) {
			char *more = realloc(buf, room *= 2);
			if (!more)
				free(buf);
			buf = more;
		}
	}
	if (!buf) {
		errno = ENOMEM;
		return system_error(e, code, path);
	}
	if (got < 0) {
		if (errno == ETIMEDOUT)
			error_set(e, code, "%s: nothing to read has come for %d seconds, nor its end", path, STREAM_SECONDS);
		else
			system_error(e, code, path);
		free(buf);
		return false;
	}
	buf[n] = '\0'; /* room > n always: the loop grows when full */
	*data = buf;
	*size = n;
	return true;
}

bool file_read(const char *path, char **data, size_t *size, int code, struct error *e)
{
	int fd = open(path, FILE_READING);
	if (fd < 0)
		return system_error(e, code, path);
	bool good = read_all(path, fd, data, size, code, e);
	close(fd);
	return good;
}

bool file_map_open(struct file_map *m, const char *path, int code, struct error *e)
{
	struct stat st;
	*m = (struct file_map){0};
	int fd = open(path, FILE_READING);
	if (fd < 0)
		return system_error(e, code, path);
	bool good = fstat(fd, &st) == 0;
	if (good && !S_ISREG(st.st_mode)) {
		close(fd);
		return error_set(e, code, "%s: not a regular file", path);
	}
	if (good && st.st_size > 0) {
		void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		good = p != MAP_FAILED;
		if (good)
			*m = (struct file_map){p, (size_t)st.st_size};
	}
	if (!good)
		system_error(e, code, path);
	close(fd);
	return good;
}

void file_map_close(struct file_map *m)
{
	if (m->data)
		munmap((void *)(uintptr_t)m->data, m->size);
	*m = (struct file_map){0};
}

bool file_pread(int fd, void *out, size_t bytes, int64_t offset)
{
	char *p = out;
	while (bytes > 0) {
		ssize_t got = pread(fd, p, bytes, offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			if (got == 0)
				errno = 0;
			return false;
		}
		p += got;
		bytes -= (size_t)got;
		offset += got;
	}
	return true;
}

bool file_write_all(int fd, const void *data, size_t bytes)
{
	const char *p = data;
	while (bytes > 0) {
		ssize_t put = write(fd, p, bytes);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return false;
		p += put;
		bytes -= (size_t)put;
	}
	return true;
}

/* A device or a pipe is no file to put another one in place of. */
static bool write_into(const char *path, const void *data, size_t bytes, int code, struct error *e)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return system_error(e, code, path);
	bool good = file_write_all(fd, data, bytes);
	int reason = errno;
	close(fd);
	errno = reason;
	return good || system_error(e, code, path);
}

bool file_replace(const char *path, const void *data, size_t bytes, int code, struct error *e)
{
	char temp[PATH_ROOM], meant[PATH_MAX];
	struct stat now;
	if (lstat(path, &now) == 0 && S_ISLNK(now.st_mode)) {
		if (!realpath(path, meant))
			return system_error(e, code, path);
		path = meant; /* the link stays */
	}
	if (stat(path, &now) == 0 && !S_ISREG(now.st_mode))
		return write_into(path, data, bytes, code, e);
	if (snprintf(temp, sizeof temp, "%s.tmp.%d", path, (int)getpid()) >= (int)sizeof temp)
		return error_set(e, code, "%s: path too long", path);
	int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return system_error(e, code, path);
	bool good = file_write_all(fd, data, bytes) && fsync(fd) == 0;
	int reason = errno;
	close(fd);
	errno = reason;
	if (good && rename(temp, path) == 0)
		return true;
	system_error(e, code, path);
	unlink(temp);
	return false;
}

bool file_make_folder(const char *path, int code, struct error *e)
{
	char part[PATH_ROOM];
	size_t n = strlen(path);
	if (n == 0 || n >= sizeof part)
		return error_set(e, code, "%s: not a usable path", path);
	memcpy(part, path, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (part[i] != '/' && part[i] != '\0')
			continue;
		char kept = part[i];
		part[i] = '\0';
		struct stat st;
		if (mkdir(part, 0777) != 0 && (errno != EEXIST || stat(part, &st) != 0 || !S_ISDIR(st.st_mode))) {
			if (errno == 0 || errno == EEXIST)
				errno = ENOTDIR;
			return system_error(e, code, part);
		}
		part[i] = kept;
	}
	return true;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

bool file_remove_tree(const char *path, int code, struct error *e)
{
	if (!file_exists(path))
		return true;
	if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
		return system_error(e, code, path);
	return true;
}

bool file_exists(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

bool file_sync_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool good = fsync(fd) == 0;
	close(fd);
	return good;
}

bool file_join(char out[PATH_ROOM], const char *dir, const char *name)
{
	size_t n = strlen(dir);
	const char *between = n > 0 && dir[n - 1] == '/' ? "" : "/";
	return snprintf(out, PATH_ROOM, "%s%s%s", dir, between, name) < PATH_ROOM;
}

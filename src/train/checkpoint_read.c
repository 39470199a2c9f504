#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "train/checkpoint_folder.h"

/* Whether the files that the manifest lists are there with their sizes. */
static bool check_sizes(const char *path, const struct manifest *m, struct error *e)
{
	char file[PATH_ROOM];
	struct stat st;
	for (int i = 0; i < m->file_count; i++) {
		const struct manifest_file *f = &m->files[i];
		if (!file_join(file, path, f->name))
			return error_set(e, CODE_CHECKPOINT, "%s: path too long", path);
		if (stat(file, &st) != 0)
			return error_set(e, CODE_CHECKPOINT, "%s: %s", file, strerror(errno));
		if (!S_ISREG(st.st_mode) || st.st_size != f->bytes)
			return error_set(e, CODE_CHECKPOINT, "%s: has %lld bytes, the manifest says %lld", file,
					 (long long)st.st_size, (long long)f->bytes);
	}
	return true;
}

bool checkpoint_read(const char *path, struct manifest *m, char **text, size_t *bytes, struct error *e)
{
	char file[PATH_ROOM], sum_file[PATH_ROOM], expected[HASH_ROOM], *json, *sum;
	size_t size, sum_size;
	manifest_init(m);
	if (!file_join(file, path, "manifest.json") || !file_join(sum_file, path, "manifest.xxh3"))
		return error_set(e, CODE_CHECKPOINT, "%s: path too long", path);
	if (!file_read(file, &json, &size, CODE_CHECKPOINT, e))
		return false;
	if (!file_read(sum_file, &sum, &sum_size, CODE_CHECKPOINT, e)) {
		free(json);
		return false;
	}
	manifest_print_hash(expected, XXH3_64bits(json, size));
	bool good = sum_size == HASH_ROOM && strncmp(sum, expected, HASH_ROOM - 1) == 0 && sum[HASH_ROOM - 1] == '\n';
	if (!good)
		error_set(e, CODE_CHECKPOINT, "%s: its checksum is %s, which is not what manifest.xxh3 says", file,
			  expected);
	good = good && manifest_parse(m, file, json, size, e);
	good = good && check_sizes(path, m, e);
	free(sum);
	if (good && text) {
		*text = json;
		*bytes = size;
		return true;
	}
	free(json);
	if (!good)
		manifest_finish(m);
	return good;
}

bool checkpoint_verify(const char *path, const struct manifest_file *file, void *buffer, struct error *e)
{
	char full[PATH_ROOM];
	if (!file_join(full, path, file->name))
		return error_set(e, CODE_CHECKPOINT, "%s: path too long", path);
	XXH3_state_t *hash = XXH3_createState();
	if (!hash)
		return error_set(e, CODE_MACHINE, "%s: out of memory", full);
	XXH3_64bits_reset(hash);
	int fd = open(full, FILE_READING);
	bool good = fd >= 0;
	for (int64_t at = 0; good && at < file->bytes;) {
		int64_t n = file->bytes - at < CHECKPOINT_CHUNK ? file->bytes - at : CHECKPOINT_CHUNK;
		errno = 0;
		good = file_pread(fd, buffer, (size_t)n, at);
		if (good)
			XXH3_64bits_update(hash, buffer, (size_t)n);
		at += n;
	}
	if (!good)
		error_set(e, CODE_CHECKPOINT, "%s: %s", full, errno ? strerror(errno) : "ends too early");
	else if (XXH3_64bits_digest(hash) != file->xxh3)
		good = error_set(e, CODE_CHECKPOINT,
				 "%s: its checksum is not what the manifest says: a byte has changed", full);
	if (fd >= 0)
		close(fd);
	XXH3_freeState(hash);
	return good;
}

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/json.h"
#include "train/safetensors.h"

int64_t safetensors_layout(struct safetensors_tensor *tensors, int count)
{
	int64_t at = 0;
	for (int i = 0; i < count; i++) {
		struct safetensors_tensor *t = &tensors[i];
		int64_t size = (int64_t)dtype_size(t->dtype);
		check(at % size == 0);
		t->type = safetensors_type(t->dtype);
		t->begin = at;
		t->end = at += safetensors_count(t) * size;
	}
	return at;
}

/* The header's text, padded with spaces to a multiple of 8; NULL: out of memory. */
static char *header_text(const struct safetensors_tensor *tensors, int count, size_t *bytes)
{
	cJSON *json = cJSON_CreateObject();
	bool good = json != NULL;
	for (int i = 0; i < count && good; i++) {
		const struct safetensors_tensor *t = &tensors[i];
		cJSON *entry = cJSON_AddObjectToObject(json, t->name);
		good = entry && cJSON_AddStringToObject(entry, "dtype", t->type) &&
		       cJSON_AddItemToObject(entry, "shape", json_new_counts(t->shape, t->dims)) &&
		       cJSON_AddItemToObject(entry, "data_offsets", json_new_counts((int64_t[]){t->begin, t->end}, 2));
	}
	char *text = good ? cJSON_PrintUnformatted(json) : NULL;
	cJSON_Delete(json);
	if (!text)
		return NULL;
	size_t length = strlen(text), padded = (length + 7) / 8 * 8;
	char *whole = realloc(text, padded + 1);
	if (!whole) {
		free(text);
		return NULL;
	}
	memset(whole + length, ' ', padded - length);
	*bytes = padded;
	return whole;
}

static bool failed(const struct safetensors_writer *w, struct error *e)
{
	return error_set(e, CODE_MACHINE, "%s: %s", w->path, strerror(errno));
}

/* Bytes of the file in order, header or data. */
static bool put(struct safetensors_writer *w, const void *data, size_t bytes, struct error *e)
{
	if (!file_write_all(w->fd, data, bytes))
		return failed(w, e);
	XXH3_64bits_update(w->hash, data, bytes);
	w->bytes += (int64_t)bytes;
	return true;
}

static bool start(struct safetensors_writer *w, const char *header, size_t bytes, struct error *e)
{
	unsigned char length[8];
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)bytes >> 8 * i);
	w->hash = XXH3_createState();
	if (!w->hash)
		return error_set(e, CODE_MACHINE, "%s: out of memory", w->path);
	XXH3_64bits_reset(w->hash);
	w->fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (w->fd < 0)
		return failed(w, e);
	return put(w, length, sizeof length, e) && put(w, header, bytes, e);
}

bool safetensors_create(struct safetensors_writer *w, const char *path, struct safetensors_tensor *tensors, int count,
			struct error *e)
{
	size_t bytes;
	*w = (struct safetensors_writer){.fd = -1};
	if (strlen(path) >= sizeof w->path)
		return error_set(e, CODE_MACHINE, "%s: path too long", path);
	memcpy(w->path, path, strlen(path) + 1);
	int64_t data = safetensors_layout(tensors, count);
	char *header = header_text(tensors, count, &bytes);
	if (!header)
		return error_set(e, CODE_MACHINE, "%s: out of memory", path);
	if (bytes > SAFETENSORS_HEADER_MAX) {
		free(header);
		return error_set(e, CODE_MACHINE, "%s: too many tensors for one file: a header of %zu bytes", path,
				 bytes);
	}
	w->total = 8 + (int64_t)bytes + data;
	bool good = start(w, header, bytes, e);
	free(header);
	if (!good)
		safetensors_abandon(w);
	return good;
}

bool safetensors_append(struct safetensors_writer *w, const void *data, size_t bytes, struct error *e)
{
	check((int64_t)bytes <= w->total - w->bytes);
	return put(w, data, bytes, e);
}

bool safetensors_finish(struct safetensors_writer *w, struct error *e)
{
	check(w->bytes == w->total);
	w->xxh3 = XXH3_64bits_digest(w->hash);
	if (fsync(w->fd) != 0)
		return failed(w, e);
	/* A network file system may only say at close that the bytes did not arrive. */
	int fd = w->fd;
	w->fd = -1;
	if (close(fd) != 0)
		return failed(w, e);
	safetensors_abandon(w);
	return true;
}

void safetensors_abandon(struct safetensors_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	XXH3_freeState(w->hash);
	w->hash = NULL;
}

/* safetensors.h: tensors in a file: 8 bytes of header length, a JSON header, the data.
 *
 * The header maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets into the data part, and may
 * hold "__metadata__", an object of strings. The data part starts at a multiple of 8 in what is written here (the
 * header is padded with spaces), and the tensors fill it without hole or overlap.
 *
 * The reader trusts nothing: every length, offset, count and key is checked against the file when it is opened, so a
 * tensor that is listed can be read. It never maps and never reads more than it is asked for. The writer streams: the
 * list first, then the bytes in order; the checksum of the whole file is formed on the way.
 *
 * A struct safetensors owns its descriptor and its list. Used by checkpoints, import and inspect. */
#ifndef MTRAIN_TRAIN_SAFETENSORS_H
#define MTRAIN_TRAIN_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "base/tensor.h"

enum { SAFETENSORS_DIMS = 8, SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 };

struct safetensors_tensor {
	const char *name;
	const char *type;   /* as the format names it: "F32", "BOOL" */
	enum dtype dtype;   /* DTYPE_COUNT: a type of the format that mtrain has none for */
	int dims;           /* 0 … SAFETENSORS_DIMS */
	int64_t shape[SAFETENSORS_DIMS];
	int64_t begin, end; /* bytes within the data part */
};

struct safetensors {
	char *path;
	int fd;
	int64_t data; /* offset of the data part in the file */
	int64_t size; /* bytes of the file */
	struct safetensors_tensor *tensors; /* sorted by name */
	int count;
	void *json; /* the parsed header, which owns the names */
};

/* "F32" for F32 …; NULL for DTYPE_COUNT. */
const char *safetensors_type(enum dtype t);
/* The other way; DTYPE_COUNT where mtrain has no such type. */
enum dtype safetensors_dtype(const char *type);

/* Opens a file and checks all of its header. Fails: CODE_CHECKPOINT with path and cause; nothing is left open. */
bool safetensors_open(struct safetensors *s, const char *path, struct error *e);
void safetensors_close(struct safetensors *s); /* a zeroed one is fine, and so is twice */

/* NULL: no such tensor. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);

/* Elements of a tensor; ≥ 0, fits int64. */
int64_t safetensors_count(const struct safetensors_tensor *t);

/* Elements first … first + count of t, row-major, as they lie in the file. Needs: a dtype that mtrain has, a range
 * inside the tensor. Fails: CODE_CHECKPOINT. */
bool safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t, int64_t first, int64_t count,
		      void *out, struct error *e);

struct safetensors_writer {
	char path[PATH_ROOM];
	int fd;
	int64_t bytes; /* written so far */
	int64_t total; /* of the whole file, known from the list */
	uint64_t xxh3; /* of the whole file, set by safetensors_finish */
	void *hash;    /* running XXH3 state */
};

/* Bytes that a file with these tensors will have; begin and end of the list are set: one behind the other. */
int64_t safetensors_layout(struct safetensors_tensor *tensors, int count);

/* Creates the file and writes its header. tensors: names, dtypes and shapes; the rest is set here. Needs: element
 * sizes that never grow along the list, so that every tensor lies aligned. Fails: CODE_MACHINE with path and cause. */
bool safetensors_create(struct safetensors_writer *w, const char *path, struct safetensors_tensor *tensors, int count,
			struct error *e);

/* The next bytes of the data. Fails: CODE_MACHINE. Needs (check): no more than the list says. */
bool safetensors_append(struct safetensors_writer *w, const void *data, size_t bytes, struct error *e);

/* Syncs and closes. Needs (check): all of the data was appended. Fails: CODE_MACHINE. */
bool safetensors_finish(struct safetensors_writer *w, struct error *e);

/* Closes without syncing, after a failure of any kind; the file is left to the caller. A finished one is fine. */
void safetensors_abandon(struct safetensors_writer *w);

#endif

/* import_folder.h: a folder of published weights in the Hugging Face form: config.json beside model.safetensors, or
 * beside model.safetensors.index.json, which names several files.
 *
 * Tensors are found by name across the files; a common prefix ("transformer.") is taken off where it stands. Private to
 * import. Owns the open files. */
#ifndef MTRAIN_TRAIN_IMPORT_FOLDER_H
#define MTRAIN_TRAIN_IMPORT_FOLDER_H

#include <cjson/cJSON.h>

#include "train/safetensors.h"

struct import_tensor {
	const char *name; /* without the prefix */
	const struct safetensors *file;
	const struct safetensors_tensor *tensor;
	bool used;
};

struct import_folder {
	const char *path;
	struct safetensors *files;
	int file_count;
	struct import_tensor *tensors; /* of all files, sorted by name */
	int count;
};

/* The folder's config.json; the caller gives it to cJSON_Delete. Fails: CODE_CHECKPOINT; NULL. */
cJSON *import_config(const char *path, struct error *e);

/* Opens all files of weights. Fails: CODE_CHECKPOINT: none is there, one is not good, the index names a tensor that is
 * in none, two tensors have the same name. */
bool import_folder_open(struct import_folder *f, const char *path, const char *prefix, struct error *e);
void import_folder_close(struct import_folder *f); /* a zeroed one is fine */

/* NULL: there is none. What is found counts as used. */
struct import_tensor *import_folder_find(struct import_folder *f, const char *name);

/* Elements first … first + count as FP32. Needs: a float type. raw: room for count elements as they are in the file;
 * may be `out` where they are FP32. Fails: CODE_CHECKPOINT. */
bool import_read(const struct import_tensor *t, int64_t first, int64_t count, void *raw, float *out, struct error *e);

#endif

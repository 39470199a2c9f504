/* manifest.h: what a checkpoint folder says about itself: where the run was, which files there are and what they
 * hash to, and for every tensor of the state which boxes of it lie in which file.
 *
 * Boxes are in coordinates of the global tensors, so nothing in a manifest knows the mesh it was written on. Every
 * manifest that is read or written has been through manifest_seal, which proves that the pieces of each tensor fill
 * it exactly once. Its text is manifest.json; the checksum of that text is manifest.xxh3.
 *
 * A manifest owns its memory, all of it, given back at once. Used by checkpoint, import and inspect. */
#ifndef MTRAIN_TRAIN_MANIFEST_H
#define MTRAIN_TRAIN_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/tensor.h"
#include "dev/scalars.h"
#include "par/box.h"
#include "train/settings.h"

enum { MANIFEST_VERSION = 1 };

struct manifest_counters { /* struct scalars says what they mean */
	int64_t step, updates, samples, tokens;
	double loss_scale;
	int64_t good_steps, overflows;
};

struct manifest_source {
	const char *name;
	int64_t samples; /* taken from it so far */
};

/* What the run puts into a manifest. */
struct manifest_run {
	struct manifest_counters counters;
	const struct manifest_source *sources;
	int source_count;
	const struct config_pair *settings; /* {"model.layers", "12"} */
	int setting_count;
	const struct config_pair *tuning; /* the device's choices (dev/tuning.h) */
	int tuning_count;
};

struct manifest_file {
	const char *name; /* within the folder */
	int64_t bytes;
	uint64_t xxh3; /* XXH3 64 bits of the whole file, 16 hex digits in the text */
};

struct manifest_piece {
	int file;        /* index */
	const char *key; /* the tensor's name in that file */
	struct box box;
};

struct manifest_tensor {
	const char *name;
	enum dtype dtype; /* named as in safetensors: "F32" */
	int dims;
	int64_t shape[TENSOR_DIMS];
	struct manifest_piece *pieces;
	int piece_count; /* 0: "fill": 0, the tensor is zero */
};

struct manifest {
	struct manifest_run run;
	struct manifest_file *files;
	int file_count;
	struct manifest_tensor *tensors; /* sorted by name */
	int tensor_count;
	struct manifest_block *blocks; /* the memory */
};

struct manifest_counters manifest_counters(const struct scalars *s);
void manifest_restore(struct scalars *s, const struct manifest_counters *c);

void manifest_init(struct manifest *m);
void manifest_finish(struct manifest *m); /* a zeroed one is fine */

/* Zeroed memory that lives as long as the manifest; NULL: there is none. */
void *manifest_take(struct manifest *m, size_t bytes);
const char *manifest_text(struct manifest *m, const char *text);

/* Copies counters, sources and settings into the manifest. False: out of memory. */
bool manifest_set_run(struct manifest *m, const struct manifest_run *run);

/* Sorts the tensors and proves the manifest whole: names of files and tensors good and unique, every shape positive
 * with a size in bytes that fits int64, every piece in a listed file and inside its tensor, and the pieces of each
 * tensor disjoint and as many elements as it has. `path` is for messages. Fails: `code` with the cause. */
bool manifest_seal(struct manifest *m, const char *path, int code, struct error *e);

/* NULL: no such tensor. Needs: sealed. */
const struct manifest_tensor *manifest_find(const struct manifest *m, const char *name);

/* NULL: no such setting. */
const char *manifest_setting(const struct manifest *m, const char *key);

/* The text of manifest.json, from malloc; NULL: out of memory. */
char *manifest_print(const struct manifest *m);

/* Fills and seals *m from the text. Fails: CODE_CHECKPOINT with path and cause; *m is empty. */
bool manifest_parse(struct manifest *m, const char *path, const char *text, size_t bytes, struct error *e);

/* 16 hex digits and a NUL, and back; false: text is not 16 hex digits. */
enum { HASH_ROOM = 17 };
void manifest_print_hash(char out[HASH_ROOM], uint64_t hash);
bool manifest_parse_hash(uint64_t *hash, const char *text);

#endif

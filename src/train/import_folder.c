#include "train/import_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

static bool too_long(const char *path, struct error *e)
{
	return error_set(e, CODE_CHECKPOINT, "%s: path too long", path);
}

static bool no_memory(const char *path, struct error *e)
{
	return error_set(e, CODE_MACHINE, "%s: out of memory", path);
}

static cJSON *read_json(const char *folder, const char *name, struct error *e)
{
	char path[PATH_ROOM], *text;
	size_t bytes;
	if (!file_join(path, folder, name)) {
		too_long(folder, e);
		return NULL;
	}
	if (!file_read(path, &text, &bytes, CODE_CHECKPOINT, e))
		return NULL;
	cJSON *json = json_parse(path, text, bytes, CODE_CHECKPOINT, e);
	free(text);
	return json;
}

cJSON *import_config(const char *path, struct error *e)
{
	return read_json(path, "config.json", e);
}

static bool open_file(struct import_folder *f, const char *name, struct error *e)
{
	char path[PATH_ROOM];
	if (strchr(name, '/'))
		return error_set(e, CODE_CHECKPOINT, "%s/%s: \"%.200s\" is not a file in the folder", f->path,
				 index_file, name);
	if (!file_join(path, f->path, name))
		return too_long(f->path, e);
	return safetensors_open(&f->files[f->file_count], path, e) && ++f->file_count;
}

static int by_text(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;
	return strcmp(*x, *y);
}

/* Opens each file that the index names, once. */
static bool open_indexed(struct import_folder *f, const cJSON *map, struct error *e)
{
	const cJSON *value;
	int count = 0;
	if (!cJSON_IsObject(map))
		return error_set(e, CODE_CHECKPOINT, "%s/%s: no object \"weight_map\"", f->path, index_file);
	const char **names = calloc((size_t)cJSON_GetArraySize(map) + 1, sizeof(const char *));
	f->files = calloc((size_t)cJSON_GetArraySize(map) + 1, sizeof *f->files);
	if (!names || !f->files) {
		free(names);
		return no_memory(f->path, e);
	}
	bool good = true;
	cJSON_ArrayForEach(value, map) {
		good = good && cJSON_IsString(value);
		if (good)
			names[count++] = value->valuestring;
	}
	if (!good)
		error_set(e, CODE_CHECKPOINT, "%s/%s: a value of \"weight_map\" is not a file name", f->path,
			  index_file);
	qsort(names, (size_t)count, sizeof *names, by_text);
	for (int i = 0; i < count && good; i++)
		if (i == 0 || strcmp(names[i - 1], names[i]) != 0)
			good = open_file(f, names[i], e);
	free(names);
	return good;
}

static int by_name(const void *a, const void *b)
{
	const struct import_tensor *x = a, *y = b;
	return strcmp(x->name, y->name);
}

static const char *without(const char *prefix, const char *name)
{
	size_t length = strlen(prefix);
	return strncmp(name, prefix, length) == 0 ? name + length : name;
}

static bool list_tensors(struct import_folder *f, const char *prefix, struct error *e)
{
	size_t count = 0;
	for (int i = 0; i < f->file_count; i++)
		count += (size_t)f->files[i].count;
	f->tensors = calloc(count + 1, sizeof *f->tensors);
	if (!f->tensors)
		return no_memory(f->path, e);
	for (int i = 0; i < f->file_count; i++)
		for (int k = 0; k < f->files[i].count; k++) {
			const struct safetensors_tensor *t = &f->files[i].tensors[k];
			f->tensors[f->count++] =
				(struct import_tensor){without(prefix, t->name), &f->files[i], t, false};
		}
	qsort(f->tensors, count, sizeof *f->tensors, by_name);
	for (int i = 1; i < f->count; i++) {
		const struct import_tensor *a = &f->tensors[i - 1], *b = &f->tensors[i];
		if (strcmp(a->name, b->name) == 0)
			return error_set(e, CODE_CHECKPOINT,
					 "%s: \"%.100s\" and \"%.100s\" in %.200s are the same tensor", a->file->path,
					 a->tensor->name, b->tensor->name, b->file->path);
	}
	return true;
}

static bool check_index(struct import_folder *f, const cJSON *map, const char *prefix, struct error *e)
{
	const cJSON *value;
	cJSON_ArrayForEach(value, map) {
		const struct import_tensor *t = import_folder_find(f, without(prefix, value->string));
		const char *file = t ? strrchr(t->file->path, '/') : NULL;
		if (!file || strcmp(file + 1, value->valuestring) != 0)
			return error_set(e, CODE_CHECKPOINT, "%s/%s: tensor \"%.200s\" is not in %.200s", f->path,
					 index_file, value->string, value->valuestring);
	}
	for (int i = 0; i < f->count; i++)
		f->tensors[i].used = false;
	return true;
}

static bool open_all(struct import_folder *f, const char *prefix, struct error *e)
{
	char path[PATH_ROOM];
	if (!file_join(path, f->path, index_file))
		return too_long(f->path, e);
	if (!file_exists(path)) {
		f->files = calloc(1, sizeof *f->files);
		if (!f->files)
			return no_memory(f->path, e);
		return open_file(f, one_file, e) && list_tensors(f, prefix, e);
	}
	cJSON *json = read_json(f->path, index_file, e);
	if (!json)
		return false;
	const cJSON *map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
	bool good = open_indexed(f, map, e) && list_tensors(f, prefix, e) && check_index(f, map, prefix, e);
	cJSON_Delete(json);
	return good;
}

bool import_folder_open(struct import_folder *f, const char *path, const char *prefix, struct error *e)
{
	*f = (struct import_folder){.path = path};
	if (open_all(f, prefix, e))
		return true;
	import_folder_close(f);
	return false;
}

void import_folder_close(struct import_folder *f)
{
	for (int i = 0; i < f->file_count; i++)
		safetensors_close(&f->files[i]);
	free(f->files);
	free(f->tensors);
	*f = (struct import_folder){0};
}

struct import_tensor *import_folder_find(struct import_folder *f, const char *name)
{
	struct import_tensor key = {.name = name};
	struct import_tensor *t = f->count ? bsearch(&key, f->tensors, (size_t)f->count, sizeof key, by_name) : NULL;
	if (t)
		t->used = true;
	return t;
}

bool import_read(const struct import_tensor *t, int64_t first, int64_t count, void *raw, float *out, struct error *e)
{
	enum dtype type = t->tensor->dtype;
	check(type == F32 || type == F16 || type == BF16 || type == F64);
	if (!safetensors_read(t->file, t->tensor, first, count, type == F32 ? out : raw, e))
		return false;
	const uint16_t *half = raw;
	const double *wide = raw;
	for (int64_t i = 0; i < count && type == F16; i++)
		out[i] = float_from_fp16(half[i]);
	for (int64_t i = 0; i < count && type == BF16; i++)
		out[i] = float_from_bf16(half[i]);
	for (int64_t i = 0; i < count && type == F64; i++)
		out[i] = (float)wide[i];
	return true;
}

#include "train/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

/* Every type of the format, so that a file with tensors we cannot use can still be checked whole. */
static const struct {
	const char *type;
	int64_t size;
	enum dtype dtype;
} types[] = {
	{"F64", 8, F64},         {"F32", 4, F32},         {"BF16", 2, BF16},       {"F16", 2, F16},
	{"I32", 4, I32},         {"I64", 8, I64},         {"U8", 1, U8},           {"BOOL", 1, DTYPE_COUNT},
	{"I8", 1, DTYPE_COUNT},  {"I16", 2, DTYPE_COUNT}, {"U16", 2, DTYPE_COUNT}, {"U32", 4, DTYPE_COUNT},
	{"U64", 8, DTYPE_COUNT}, {"F8_E4M3", 1, DTYPE_COUNT}, {"F8_E5M2", 1, DTYPE_COUNT},
};
enum { TYPES = sizeof types / sizeof types[0] };

const char *safetensors_type(enum dtype t)
{
	for (int i = 0; i < TYPES; i++)
		if (types[i].dtype == t && t != DTYPE_COUNT)
			return types[i].type;
	return NULL;
}

enum dtype safetensors_dtype(const char *type)
{
	for (int i = 0; i < TYPES; i++)
		if (strcmp(types[i].type, type) == 0)
			return types[i].dtype;
	return DTYPE_COUNT;
}

static bool bad(const struct safetensors *s, struct error *e, const char *name, const char *what)
{
	return error_set(e, CODE_CHECKPOINT, "%s: tensor \"%.200s\": %s", s->path, name, what);
}

/* One entry of the header. data: bytes of the data part. */
static bool parse_tensor(const struct safetensors *s, const cJSON *value, int64_t data, struct safetensors_tensor *t,
			 struct error *e)
{
	int64_t size = 0, offsets[2];
	int two;
	t->name = value->string;
	if (!cJSON_IsObject(value))
		return bad(s, e, t->name, "not an object");
	if (!json_text(value, "dtype", &t->type))
		return bad(s, e, t->name, "no dtype");
	for (int i = 0; i < TYPES; i++)
		if (strcmp(types[i].type, t->type) == 0) {
			size = types[i].size;
			t->dtype = types[i].dtype;
		}
	if (size == 0)
		return error_set(e, CODE_CHECKPOINT, "%s: tensor \"%.200s\": unknown dtype \"%.40s\"", s->path, t->name,
				 t->type);
	if (!json_counts(value, "shape", t->shape, SAFETENSORS_DIMS, &t->dims))
		return bad(s, e, t->name, "shape is not a list of at most 8 whole numbers");
	if (!json_counts(value, "data_offsets", offsets, 2, &two) || two != 2)
		return bad(s, e, t->name, "data_offsets is not a pair of whole numbers");
	t->begin = offsets[0];
	t->end = offsets[1];
	if (t->begin > t->end || t->end > data)
		return error_set(e, CODE_CHECKPOINT,
				 "%s: tensor \"%.200s\": bytes %lld to %lld are not within the %lld bytes of data",
				 s->path, t->name, (long long)t->begin, (long long)t->end, (long long)data);
	int64_t bytes = size;
	bool fits = true;
	for (int i = 0; i < t->dims; i++)
		fits = fits && !__builtin_mul_overflow(bytes, t->shape[i], &bytes);
	if (!fits || bytes != t->end - t->begin)
		return error_set(e, CODE_CHECKPOINT,
				 "%s: tensor \"%.200s\": its shape does not take the %lld bytes it has", s->path,
				 t->name, (long long)(t->end - t->begin));
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;
	return strcmp(x->name, y->name);
}

static bool parse_header(struct safetensors *s, const char *text, size_t bytes, int64_t data, struct error *e)
{
	const cJSON *value;
	cJSON *json = json_parse(s->path, text, bytes, CODE_CHECKPOINT, e);
	s->json = json;
	if (!json)
		return false;
	if (!cJSON_IsObject(json))
		return error_set(e, CODE_CHECKPOINT, "%s: the header is not a JSON object", s->path);
	size_t room = (size_t)cJSON_GetArraySize(json) + 1;
	s->tensors = calloc(room, sizeof *s->tensors);
	if (!s->tensors)
		return error_set(e, CODE_MACHINE, "%s: out of memory", s->path);
	cJSON_ArrayForEach(value, json) if (strcmp(value->string, "__metadata__") != 0 &&
					    !parse_tensor(s, value, data, &s->tensors[s->count++], e)) return false;

	qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_place);
	int64_t at = 0;
	for (int i = 0; i < s->count; i++) {
		const struct safetensors_tensor *t = &s->tensors[i];
		if (t->begin < at)
			return bad(s, e, t->name, "overlaps another tensor");
		if (t->begin > at)
			return bad(s, e, t->name, "there are bytes before it that belong to no tensor");
		at = t->end;
	}
	if (at != data)
		return error_set(e, CODE_CHECKPOINT, "%s: %lld bytes behind the last tensor", s->path,
				 (long long)(data - at));
	qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_name);
	return true;
}

static bool open_checked(struct safetensors *s, struct error *e)
{
	struct stat st;
	unsigned char length[8];
	s->fd = open(s->path, FILE_READING);
	if (s->fd < 0 || fstat(s->fd, &st) != 0)
		return error_set(e, CODE_CHECKPOINT, "%s: %s", s->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return error_set(e, CODE_CHECKPOINT, "%s: not a regular file", s->path);
	s->size = st.st_size;
	if (s->size < 8 || !file_pread(s->fd, length, 8, 0))
		return error_set(e, CODE_CHECKPOINT, "%s: too short for a safetensors file: %lld bytes", s->path,
				 (long long)s->size);
	uint64_t header = 0;
	for (int i = 7; i >= 0; i--)
		header = header << 8 | length[i];
	if (header > SAFETENSORS_HEADER_MAX || header > (uint64_t)s->size - 8)
		return error_set(e, CODE_CHECKPOINT,
				 "%s: says its header has %llu bytes; the file has %lld, a header at most %d", s->path,
				 (unsigned long long)header, (long long)s->size, SAFETENSORS_HEADER_MAX);
	s->data = 8 + (int64_t)header;
	char *text = malloc((size_t)header + 1);
	if (!text)
		return error_set(e, CODE_MACHINE, "%s: out of memory", s->path);
	bool good = file_pread(s->fd, text, (size_t)header, 8);
	if (good)
		good = parse_header(s, text, (size_t)header, s->size - s->data, e);
	else
		error_set(e, CODE_CHECKPOINT, "%s: %s", s->path, errno ? strerror(errno) : "ends too early");
	free(text);
	return good;
}

bool safetensors_open(struct safetensors *s, const char *path, struct error *e)
{
	*s = (struct safetensors){.fd = -1, .path = strdup(path)};
	if (!s->path)
		return error_set(e, CODE_MACHINE, "%s: out of memory", path);
	if (open_checked(s, e))
		return true;
	safetensors_close(s);
	return false;
}

void safetensors_close(struct safetensors *s)
{
	if (s->path && s->fd >= 0)
		close(s->fd);
	cJSON_Delete(s->json);
	free(s->tensors);
	free(s->path);
	*s = (struct safetensors){.fd = -1};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
	struct safetensors_tensor key = {.name = name};
	return s->count ? bsearch(&key, s->tensors, (size_t)s->count, sizeof key, by_name) : NULL;
}

int64_t safetensors_count(const struct safetensors_tensor *t)
{
	int64_t count = 1;
	for (int i = 0; i < t->dims; i++)
		count *= t->shape[i];
	return count;
}

bool safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t, int64_t first, int64_t count,
		      void *out, struct error *e)
{
	check(t->dtype != DTYPE_COUNT && first >= 0 && count >= 0 && count <= safetensors_count(t) - first);
	int64_t size = (int64_t)dtype_size(t->dtype);
	if (file_pread(s->fd, out, (size_t)(count * size), s->data + t->begin + first * size))
		return true;
	return error_set(e, CODE_CHECKPOINT, "%s: tensor \"%.200s\": %s", s->path, t->name,
			 errno ? strerror(errno) : "the file ends too early");
}

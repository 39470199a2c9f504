#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/manifest.h"
#include "train/safetensors.h"

/* Writing: every cJSON call answers NULL or false when memory is out, and takes NULL for an answer. */

static bool print_run(cJSON *json, const struct manifest_run *run)
{
	const struct manifest_counters *c = &run->counters;
	bool good = json_add_count(json, "version", MANIFEST_VERSION) &&
		    json_add_count(json, "step", c->step) &&
		    json_add_count(json, "updates", c->updates) &&
		    json_add_count(json, "samples", c->samples) &&
		    json_add_count(json, "tokens", c->tokens) &&
		    json_add_number(json, "loss_scale", c->loss_scale) &&
		    json_add_count(json, "good_steps", c->good_steps) &&
		    json_add_count(json, "overflows", c->overflows);
	cJSON *sources = cJSON_AddArrayToObject(json, "sources");
	for (int i = 0; i < run->source_count && good; i++) {
		cJSON *s = cJSON_CreateObject();
		good = cJSON_AddItemToArray(sources, s) && cJSON_AddStringToObject(s, "name", run->sources[i].name) &&
		       json_add_count(s, "samples", run->sources[i].samples);
	}
	cJSON *settings = cJSON_AddObjectToObject(json, "settings");
	for (int i = 0; i < run->setting_count && good; i++)
		good = cJSON_AddStringToObject(settings, run->settings[i].key, run->settings[i].value);
	cJSON *tuning = cJSON_AddObjectToObject(json, "tuning");
	for (int i = 0; i < run->tuning_count && good; i++)
		good = cJSON_AddStringToObject(tuning, run->tuning[i].key, run->tuning[i].value);
	return good && sources && settings && tuning;
}

static bool print_files(cJSON *json, const struct manifest *m)
{
	cJSON *files = cJSON_AddArrayToObject(json, "files");
	bool good = files != NULL;
	for (int i = 0; i < m->file_count && good; i++) {
		char hash[HASH_ROOM];
		cJSON *f = cJSON_CreateObject();
		manifest_print_hash(hash, m->files[i].xxh3);
		good = cJSON_AddItemToArray(files, f) && cJSON_AddStringToObject(f, "name", m->files[i].name) &&
		       json_add_count(f, "bytes", m->files[i].bytes) &&
		       cJSON_AddStringToObject(f, "xxh3", hash);
	}
	return good;
}

static bool print_tensor(cJSON *tensors, const struct manifest *m, const struct manifest_tensor *t)
{
	cJSON *out = cJSON_CreateObject();
	bool good = cJSON_AddItemToArray(tensors, out) && cJSON_AddStringToObject(out, "name", t->name) &&
		    cJSON_AddStringToObject(out, "dtype", safetensors_type(t->dtype)) &&
		    cJSON_AddItemToObject(out, "shape", json_new_counts(t->shape, t->dims));
	if (t->piece_count == 0)
		return good && json_add_count(out, "fill", 0);
	cJSON *pieces = cJSON_AddArrayToObject(out, "pieces");
	for (int i = 0; i < t->piece_count && good; i++) {
		const struct manifest_piece *p = &t->pieces[i];
		cJSON *piece = cJSON_CreateObject();
		good = cJSON_AddItemToArray(pieces, piece) &&
		       cJSON_AddStringToObject(piece, "file", m->files[p->file].name) &&
		       cJSON_AddStringToObject(piece, "key", p->key) &&
		       cJSON_AddItemToObject(piece, "begin", json_new_counts(p->box.begin, t->dims)) &&
		       cJSON_AddItemToObject(piece, "end", json_new_counts(p->box.end, t->dims));
	}
	return good;
}

char *manifest_print(const struct manifest *m)
{
	cJSON *json = cJSON_CreateObject();
	bool good = json && print_run(json, &m->run) && print_files(json, m);
	cJSON *tensors = good ? cJSON_AddArrayToObject(json, "tensors") : NULL;
	for (int i = 0; i < m->tensor_count && good; i++)
		good = print_tensor(tensors, m, &m->tensors[i]);
	char *text = good && tensors ? cJSON_Print(json) : NULL;
	cJSON_Delete(json);
	return text;
}

/* Reading. */

struct parse {
	struct manifest *m;
	const char *path;
	struct error *e;
	int *by_name; /* file indices, sorted by name */
};

static bool wrong(const struct parse *p, const char *what)
{
	return error_set(p->e, CODE_CHECKPOINT, "%s: %s", p->path, what);
}

static bool wrong_tensor(const struct parse *p, const struct manifest_tensor *t, const char *what)
{
	return error_set(p->e, CODE_CHECKPOINT, "%s: tensor \"%.200s\": %s", p->path, t->name ? t->name : "?", what);
}

static bool no_memory(const struct parse *p)
{
	return error_set(p->e, CODE_MACHINE, "%s: out of memory", p->path);
}

/* Array or object `key`, and zeroed room for one item of `size` for each of its children. */
static bool parse_list(const struct parse *p, const cJSON *json, const char *key, bool object, const cJSON **list,
		       size_t size, void **items, int *count)
{
	*list = cJSON_GetObjectItemCaseSensitive(json, key);
	if (!(object ? cJSON_IsObject(*list) : cJSON_IsArray(*list)))
		return error_set(p->e, CODE_CHECKPOINT, "%s: no %s \"%s\"", p->path, object ? "object" : "list", key);
	*count = cJSON_GetArraySize(*list);
	*items = manifest_take(p->m, (size_t)*count * size);
	return *items || no_memory(p);
}

/* An object of texts. */
static bool parse_pairs(const struct parse *p, const cJSON *json, const char *key, const struct config_pair **out, int *count)
{
	const cJSON *list, *value;
	void *items;
	if (!parse_list(p, json, key, true, &list, sizeof **out, &items, count))
		return false;
	struct config_pair *pair = items;
	*out = pair;
	cJSON_ArrayForEach(value, list) {
		if (!cJSON_IsString(value))
			return error_set(p->e, CODE_CHECKPOINT, "%s: \"%.100s\" in \"%s\" is not a text", p->path, value->string, key);
		pair->key = manifest_text(p->m, value->string);
		pair->value = manifest_text(p->m, value->valuestring);
		if (!pair->key || !pair->value)
			return no_memory(p);
		pair++;
	}
	return true;
}

static bool parse_run(const struct parse *p, const cJSON *json)
{
	struct manifest *m = p->m;
	struct manifest_counters *c = &m->run.counters;
	struct manifest_source *source;
	const cJSON *list, *value;
	int64_t version;
	void *items;
	if (!json_count(json, "version", &version))
		return wrong(p, "no \"version\"");
	if (version != MANIFEST_VERSION)
		return error_set(p->e, CODE_CHECKPOINT, "%s: version %lld; this mtrain reads version %d", p->path,
				 (long long)version, MANIFEST_VERSION);
	const struct {
		const char *key;
		int64_t *out;
	} counts[] = {{"step", &c->step},     {"updates", &c->updates},       {"samples", &c->samples},
		      {"tokens", &c->tokens}, {"good_steps", &c->good_steps}, {"overflows", &c->overflows}};
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		if (!json_count(json, counts[i].key, counts[i].out))
			return error_set(p->e, CODE_CHECKPOINT, "%s: \"%s\" is not a whole number", p->path,
					 counts[i].key);
	if (!json_number(json, "loss_scale", &c->loss_scale) || !(c->loss_scale > 0))
		return wrong(p, "\"loss_scale\" is not a number above 0");

	if (!parse_list(p, json, "sources", false, &list, sizeof *source, &items, &m->run.source_count))
		return false;
	m->run.sources = source = items;
	cJSON_ArrayForEach(value, list) {
		const char *name;
		if (!json_text(value, "name", &name) || !json_count(value, "samples", &source->samples))
			return wrong(p, "a source without name or samples");
		if (!(source++->name = manifest_text(m, name)))
			return no_memory(p);
	}
	return parse_pairs(p, json, "settings", &m->run.settings, &m->run.setting_count) &&
	       parse_pairs(p, json, "tuning", &m->run.tuning, &m->run.tuning_count);
}

static int by_file_name(const void *a, const void *b, void *context)
{
	const struct manifest *m = context;
	const int *x = a, *y = b;
	return strcmp(m->files[*x].name, m->files[*y].name);
}

static bool parse_files(struct parse *p, const cJSON *json)
{
	struct manifest *m = p->m;
	const cJSON *list, *value;
	const char *name, *hash;
	void *items;
	if (!parse_list(p, json, "files", false, &list, sizeof *m->files, &items, &m->file_count))
		return false;
	struct manifest_file *f = m->files = items;
	p->by_name = manifest_take(m, (size_t)m->file_count * sizeof *p->by_name);
	if (!p->by_name)
		return no_memory(p);
	cJSON_ArrayForEach(value, list) {
		if (!json_text(value, "name", &name) || !json_count(value, "bytes", &f->bytes) ||
		    !json_text(value, "xxh3", &hash) || !manifest_parse_hash(&f->xxh3, hash))
			return wrong(p, "a file without name, bytes or a checksum of 16 hex digits");
		if (!(f->name = manifest_text(m, name)))
			return no_memory(p);
		p->by_name[f - m->files] = (int)(f - m->files);
		f++;
	}
	qsort_r(p->by_name, (size_t)m->file_count, sizeof *p->by_name, by_file_name, m);
	return true;
}

/* −1: not listed. */
static int file_index(const struct parse *p, const char *name)
{
	int low = 0, high = p->m->file_count;
	while (low < high) {
		int middle = (low + high) / 2;
		int order = strcmp(p->m->files[p->by_name[middle]].name, name);
		if (order == 0)
			return p->by_name[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

static bool parse_piece(const struct parse *p, const cJSON *value, const struct manifest_tensor *t,
			struct manifest_piece *out)
{
	const char *file, *key;
	int begins, ends;
	out->box = (struct box){.dims = t->dims, .end = {1, 1, 1, 1}};
	if (!json_text(value, "file", &file) || !json_text(value, "key", &key) ||
	    !json_counts(value, "begin", out->box.begin, TENSOR_DIMS, &begins) || begins != t->dims ||
	    !json_counts(value, "end", out->box.end, TENSOR_DIMS, &ends) || ends != t->dims)
		return wrong_tensor(p, t, "a piece without file, key, begin or end");
	out->file = file_index(p, file);
	if (out->file < 0)
		return error_set(p->e, CODE_CHECKPOINT,
				 "%s: tensor \"%.200s\": a piece is in \"%.100s\", which is not listed", p->path,
				 t->name, file);
	out->key = manifest_text(p->m, key);
	return out->key || no_memory(p);
}

static bool parse_tensor(const struct parse *p, const cJSON *value, struct manifest_tensor *t)
{
	const char *name, *type;
	const cJSON *list, *piece;
	int64_t fill;
	void *items;
	if (!json_text(value, "name", &name))
		return wrong(p, "a tensor without name");
	if (!(t->name = manifest_text(p->m, name)))
		return no_memory(p);
	if (!json_text(value, "dtype", &type) || (t->dtype = safetensors_dtype(type)) == DTYPE_COUNT)
		return wrong_tensor(p, t, "no dtype that mtrain has");
	if (!json_counts(value, "shape", t->shape, TENSOR_DIMS, &t->dims) || t->dims == 0)
		return wrong_tensor(p, t, "shape is not a list of 1 to 4 whole numbers");
	if (cJSON_GetObjectItemCaseSensitive(value, "fill")) {
		if (!json_count(value, "fill", &fill) || fill != 0 || cJSON_GetObjectItemCaseSensitive(value, "pieces"))
			return wrong_tensor(p, t, "\"fill\" can only be 0, in place of pieces");
		return true;
	}
	if (!parse_list(p, value, "pieces", false, &list, sizeof *t->pieces, &items, &t->piece_count))
		return false;
	t->pieces = items;
	if (t->piece_count == 0)
		return wrong_tensor(p, t, "no pieces");
	struct manifest_piece *out = t->pieces;
	cJSON_ArrayForEach(piece, list)
		if (!parse_piece(p, piece, t, out++))
			return false;
	return true;
}

static bool parse_all(struct parse *p, const cJSON *json)
{
	const cJSON *list, *value;
	void *items;
	if (!cJSON_IsObject(json))
		return wrong(p, "not a JSON object");
	if (!parse_run(p, json) || !parse_files(p, json) ||
	    !parse_list(p, json, "tensors", false, &list, sizeof *p->m->tensors, &items, &p->m->tensor_count))
		return false;
	struct manifest_tensor *t = p->m->tensors = items;
	cJSON_ArrayForEach(value, list)
		if (!parse_tensor(p, value, t++))
			return false;
	return manifest_seal(p->m, p->path, CODE_CHECKPOINT, p->e);
}

bool manifest_parse(struct manifest *m, const char *path, const char *text, size_t bytes, struct error *e)
{
	struct parse p = {.m = m, .path = path, .e = e};
	manifest_init(m);
	cJSON *json = json_parse(path, text, bytes, CODE_CHECKPOINT, e);
	bool good = json && parse_all(&p, json);
	cJSON_Delete(json);
	if (!good)
		manifest_finish(m);
	return good;
}

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "commands/inspect.h"
#include "train/checkpoint_folder.h"
#include "train/safetensors.h"

static void add_run(cJSON *out, const struct manifest_run *run)
{
	const struct manifest_counters *c = &run->counters;
	json_put_count(out, "step", c->step);
	json_put_count(out, "updates", c->updates);
	json_put_count(out, "samples", c->samples);
	json_put_count(out, "tokens", c->tokens);
	json_put_number(out, "loss_scale", c->loss_scale);
	json_put_count(out, "good_steps", c->good_steps);
	json_put_count(out, "overflows", c->overflows);
	cJSON *sources = json_put_array(out, "sources");
	for (int i = 0; i < run->source_count; i++) {
		cJSON *s = json_put_object(sources, NULL);
		json_put_text(s, "name", run->sources[i].name);
		json_put_count(s, "samples", run->sources[i].samples);
	}
	cJSON *settings = json_put_object(out, "settings");
	for (int i = 0; i < run->setting_count; i++)
		json_put_text(settings, run->settings[i].key, run->settings[i].value);
}

static void add_tensor(cJSON *list, const char *name, const char *type, int dims, const int64_t *shape)
{
	cJSON *t = json_put_object(list, NULL);
	json_put_text(t, "name", name);
	json_put_text(t, "dtype", type);
	json_put(t, "shape", json_new_counts(shape, dims));
}

static void add_tensors(cJSON *out, const struct manifest *m)
{
	cJSON *list = json_put_array(out, "tensors");
	for (int i = 0; i < m->tensor_count; i++) {
		const struct manifest_tensor *t = &m->tensors[i];
		add_tensor(list, t->name, safetensors_type(t->dtype), t->dims, t->shape);
		json_put_count(list->child->prev, "pieces", t->piece_count);
	}
}

/* Each file with the answer to its checksum; the first that is wrong is the error. */
static bool add_files(cJSON *out, const char *path, const struct manifest *m, struct error *e)
{
	cJSON *list = json_put_array(out, "files");
	void *buffer = malloc(CHECKPOINT_CHUNK);
	if (!buffer)
		return error_set(e, CODE_MACHINE, "%s: out of memory", path);
	bool good = true;
	for (int i = 0; i < m->file_count; i++) {
		const struct manifest_file *f = &m->files[i];
		struct error cause;
		char hash[HASH_ROOM];
		bool right = checkpoint_verify(path, f, buffer, &cause);
		cJSON *file = json_put_object(list, NULL);
		json_put_text(file, "name", f->name);
		json_put_count(file, "bytes", f->bytes);
		manifest_print_hash(hash, f->xxh3);
		json_put_text(file, "xxh3", hash);
		json_put_flag(file, "valid", right);
		if (!right && good)
			*e = cause;
		good = good && right;
	}
	free(buffer);
	return good;
}

bool inspect_checkpoint(cJSON *out, const char *path, struct error *e)
{
	struct manifest m;
	json_put_text(out, "kind", "checkpoint");
	json_put_text(out, "path", path);
	if (!checkpoint_read(path, &m, NULL, NULL, e))
		return false;
	add_run(out, &m.run);
	bool good = add_files(out, path, &m, e);
	add_tensors(out, &m);
	manifest_finish(&m);
	return good;
}

/* Valid here is what takes no time to see: manifest, checksum of the manifest, sizes. */
static bool add_checkpoints(cJSON *out, const char *path, struct error *e)
{
	char dir[PATH_ROOM];
	int64_t *steps;
	int count;
	if (!file_join(dir, path, "checkpoints"))
		return error_set(e, CODE_CHECKPOINT, "%s: path too long", path);
	if (!checkpoint_list(dir, &steps, &count, e))
		return false;
	cJSON *list = json_put_array(out, "checkpoints");
	for (int i = count - 1; i >= 0; i--) {
		char name[STEP_NAME_ROOM], folder[PATH_ROOM];
		struct manifest m;
		struct error cause;
		checkpoint_step_name(name, steps[i]);
		cJSON *c = json_put_object(list, NULL);
		json_put_text(c, "name", name);
		bool good = file_join(folder, dir, name) && checkpoint_read(folder, &m, NULL, NULL, &cause);
		json_put_flag(c, "valid", good);
		if (!good)
			json_put_text(c, "cause", cause.text);
		else
			manifest_finish(&m);
	}
	free(steps);
	return true;
}

/* The last lines of metrics.jsonl, as far as they are whole. */
static bool add_metrics(cJSON *out, const char *path, struct error *e)
{
	enum { TAIL = 1 << 14, LINES = 5 };
	char file[PATH_ROOM];
	static char tail[TAIL + 1];
	cJSON *lines[LINES] = {0};
	int count = 0;
	if (!file_join(file, path, "metrics.jsonl"))
		return error_set(e, CODE_CHECKPOINT, "%s: path too long", path);
	int fd = open(file, FILE_READING);
	if (fd < 0)
		return true;
	int64_t size = lseek(fd, 0, SEEK_END), from = size > TAIL ? size - TAIL : 0;
	bool good = size >= 0 && file_pread(fd, tail, (size_t)(size - from), from);
	close(fd);
	if (!good)
		return error_set(e, CODE_CHECKPOINT, "%s: cannot be read", file);
	char *end = tail + (size - from);
	while (count < LINES && end > tail) {
		char *newline = memrchr(tail, '\n', (size_t)(end - tail));
		if (!newline)
			break;
		*newline = '\0';
		char *before = memrchr(tail, '\n', (size_t)(newline - tail));
		if (!before && from > 0)
			break; /* its beginning was not read */
		char *line = before ? before + 1 : tail;
		end = newline == tail ? tail : line;
		if ((lines[count] = cJSON_Parse(line)))
			count++;
	}
	cJSON *list = json_put_array(out, "metrics");
	while (count > 0)
		json_put(list, NULL, lines[--count]);
	return true;
}

bool inspect_run(cJSON *out, const char *path, struct error *e)
{
	json_put_text(out, "kind", "run");
	json_put_text(out, "path", path);
	return add_checkpoints(out, path, e) && add_metrics(out, path, e);
}

bool inspect_safetensors(cJSON *out, const char *path, struct error *e)
{
	struct safetensors s;
	json_put_text(out, "kind", "safetensors");
	json_put_text(out, "path", path);
	if (!safetensors_open(&s, path, e))
		return false;
	json_put_count(out, "bytes", s.size);
	cJSON *list = json_put_array(out, "tensors");
	for (int i = 0; i < s.count; i++)
		add_tensor(list, s.tensors[i].name, s.tensors[i].type, s.tensors[i].dims, s.tensors[i].shape);
	safetensors_close(&s);
	return true;
}

#include "train/import_gpt2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/param.h"
#include "train/checkpoint_folder.h"
#include "train/import_folder.h"

/* How a parameter lies in GPT-2's file. As [rows, columns] with rows the product of all but the input width: */
enum source {
	AS_IT_IS, /* the same elements in the same order */
	TURNED,   /* [columns, rows] */
	QKV,      /* [columns, 3·rows/3]: all queries, all keys, all values; also for the bias, of one column */
};

static const struct {
	const char *ours, *theirs; /* behind "layers.I." and "h.I." where it is of a layer */
	enum source source;
} names[] = {
	{"embedding.token.weight", "wte.weight", AS_IT_IS},
	{"embedding.position.weight", "wpe.weight", AS_IT_IS},
	{"norm1.weight", "ln_1.weight", AS_IT_IS},
	{"norm1.bias", "ln_1.bias", AS_IT_IS},
	{"attention.qkv.weight", "attn.c_attn.weight", QKV},
	{"attention.qkv.bias", "attn.c_attn.bias", QKV},
	{"attention.out.weight", "attn.c_proj.weight", TURNED},
	{"attention.out.bias", "attn.c_proj.bias", AS_IT_IS},
	{"norm2.weight", "ln_2.weight", AS_IT_IS},
	{"norm2.bias", "ln_2.bias", AS_IT_IS},
	{"mlp.up.weight", "mlp.c_fc.weight", TURNED},
	{"mlp.up.bias", "mlp.c_fc.bias", AS_IT_IS},
	{"mlp.down.weight", "mlp.c_proj.weight", TURNED},
	{"mlp.down.bias", "mlp.c_proj.bias", AS_IT_IS},
	{"norm.weight", "ln_f.weight", AS_IT_IS},
	{"norm.bias", "ln_f.bias", AS_IT_IS},
	{"head.weight", "lm_head.weight", AS_IT_IS},
};
enum { NAMES = sizeof names / sizeof names[0] };

/* One parameter and where it comes from. */
struct item {
	const struct param *param;
	const struct import_tensor *from;
	enum source source;
	int64_t rows, columns;
	int64_t head_size; /* D, for QKV */
};

struct import {
	struct import_folder folder;
	struct param_table params;
	struct item *items; /* beside params.params */
};

static bool right_shape(const struct item *i)
{
	const struct safetensors_tensor *t = i->from->tensor;
	if (i->source == QKV && i->columns == 1)
		return t->dims == 1 && t->shape[0] == i->rows;
	if (i->source != AS_IT_IS)
		return t->dims == 2 && t->shape[0] == i->columns && t->shape[1] == i->rows;
	bool same = t->dims == i->param->dims;
	for (int d = 0; d < t->dims && same; d++)
		same = t->shape[d] == i->param->shape[d];
	return same;
}

static bool find_item(struct import *im, const struct model_settings *m, const struct param *p, struct item *i,
		      struct error *e)
{
	char name[2 * PARAM_NAME];
	bool of_layer = p->layer >= 0 && p->layer < m->layers;
	const char *ours = of_layer ? strchr(p->name + strlen("layers."), '.') + 1 : p->name;
	int k = 0;
	while (k < NAMES && strcmp(names[k].ours, ours) != 0)
		k++;
	check(k < NAMES);
	if (of_layer)
		snprintf(name, sizeof name, "h.%lld.%s", (long long)p->layer, names[k].theirs);
	else
		snprintf(name, sizeof name, "%s", names[k].theirs);

	struct box whole = box_whole(p->dims, p->shape);
	*i = (struct item){.param = p, .source = names[k].source, .head_size = m->head_size};
	bool matrix = strcmp(ours, "attention.qkv.bias") != 0 && p->dims > 1;
	i->columns = !matrix                                     ? 1
		     : strcmp(ours, "attention.out.weight") == 0 ? p->shape[1] * p->shape[2]
								 : p->shape[p->dims - 1];
	i->rows = box_count(&whole) / i->columns;
	i->from = import_folder_find(&im->folder, name);
	if (!i->from)
		return error_set(e, CODE_CHECKPOINT, "%s: no tensor \"%s\"", im->folder.path, name);
	enum dtype type = i->from->tensor->dtype;
	if (type != F32 && type != F16 && type != BF16 && type != F64)
		return error_set(e, CODE_CHECKPOINT,
				 "%s: tensor \"%s\" is of type %s, not a float type that can be read",
				 i->from->file->path, name, i->from->tensor->type);
	if (!right_shape(i))
		return error_set(e, CODE_CHECKPOINT, "%s: tensor \"%s\" is not of the shape that config.json makes it",
				 i->from->file->path, name);
	return true;
}

/* Buffers of the causal mask, which some files keep: h.I.attn.bias and h.I.attn.masked_bias. */
static bool is_mask(const char *name)
{
	int end = 0;
	if (sscanf(name, "h.%*d.attn.%n", &end) != 0 || end == 0)
		return false;
	return strcmp(name + end, "bias") == 0 || strcmp(name + end, "masked_bias") == 0;
}

static bool find_all(struct import *im, const struct model_settings *m, struct error *e)
{
	for (int i = 0; i < im->params.count; i++)
		if (!find_item(im, m, &im->params.params[i], &im->items[i], e))
			return false;
	for (int i = 0; i < im->folder.count; i++) {
		const struct import_tensor *t = &im->folder.tensors[i];
		bool known = t->used || is_mask(t->name) || (m->tied && strcmp(t->name, "lm_head.weight") == 0);
		if (!known)
			return error_set(e, CODE_CHECKPOINT, "%s: tensor \"%.200s\" has no place in this model",
					 t->file->path, t->tensor->name);
	}
	return true;
}

enum { PIECE = CHECKPOINT_CHUNK / sizeof(double) }; /* elements in a buffer */

struct buffers {
	void *raw;   /* PIECE elements of any type */
	float *ours; /* PIECE elements */
};

static bool write_as_it_is(const struct item *i, struct buffers *b, struct safetensors_writer *w, struct error *e)
{
	int64_t count = i->rows * i->columns;
	for (int64_t at = 0; at < count; at += PIECE) {
		int64_t n = count - at < PIECE ? count - at : PIECE;
		if (!import_read(i->from, at, n, b->raw, b->ours, e) ||
		    !safetensors_append(w, b->ours, (size_t)n * sizeof(float), e))
			return false;
	}
	return true;
}

/* Which of their columns is our row: (head, q k v, d) here is (q k v, head, d) there. */
static int64_t their_column(const struct item *i, int64_t row)
{
	if (i->source == TURNED)
		return row;
	int64_t d = row % i->head_size, kind = row / i->head_size % 3, head = row / i->head_size / 3;
	return kind * (i->rows / 3) + head * i->head_size + d;
}

static bool write_turned(const struct item *i, struct buffers *b, struct safetensors_writer *w, struct error *e)
{
	int64_t count = i->rows * i->columns, n = 0;
	float *all = malloc((size_t)count * sizeof *all);
	bool good = all || error_set(e, CODE_MACHINE, "out of memory for a matrix of %lld elements", (long long)count);
	for (int64_t at = 0; at < count && good; at += PIECE)
		good = import_read(i->from, at, count - at < PIECE ? count - at : PIECE, b->raw, all + at, e);
	for (int64_t row = 0; row < i->rows && good; row++) {
		const float *from = all + their_column(i, row);
		for (int64_t k = 0; k < i->columns && good; k++) {
			b->ours[n++] = from[k * i->rows];
			if (n < PIECE && !(row == i->rows - 1 && k == i->columns - 1))
				continue;
			good = safetensors_append(w, b->ours, (size_t)n * sizeof(float), e);
			n = 0;
		}
	}
	free(all);
	return good;
}

static bool write_weights(const struct import *im, const char *path, struct safetensors_writer *w, struct error *e)
{
	size_t count = (size_t)im->params.count;
	char (*keys)[PARAM_NAME + 8] = calloc(count, sizeof *keys);
	struct safetensors_tensor *list = calloc(count, sizeof *list);
	struct buffers b = {malloc(CHECKPOINT_CHUNK), malloc(PIECE * sizeof(float))};
	bool good = keys && list && b.raw && b.ours;
	if (!good)
		error_set(e, CODE_MACHINE, "%s: out of memory", path);
	for (size_t i = 0; i < count && good; i++) {
		const struct param *p = &im->params.params[i];
		snprintf(keys[i], sizeof keys[i], "weight/%s", p->name);
		list[i] = (struct safetensors_tensor){.name = keys[i], .dtype = F32, .dims = p->dims};
		memcpy(list[i].shape, p->shape, sizeof p->shape);
	}
	good = good && safetensors_create(w, path, list, (int)count, e);
	bool made = good;
	for (size_t i = 0; i < count && good; i++)
		good = (im->items[i].source == AS_IT_IS ? write_as_it_is : write_turned)(&im->items[i], &b, w, e);
	good = good && safetensors_finish(w, e);
	if (made && !good)
		safetensors_abandon(w);
	free(keys);
	free(list);
	free(b.raw);
	free(b.ours);
	return good;
}

/* weight/NAME in the file, m/NAME and v/NAME zero. */
static bool fill_manifest(struct manifest *m, const struct param_table *params, const struct manifest_run *run,
			  const char *file, const struct safetensors_writer *w)
{
	static const char *const kinds[] = {"weight", "m", "v"};
	struct manifest_file *f = m->files = manifest_take(m, sizeof *f);
	struct manifest_tensor *t = m->tensors = manifest_take(m, 3 * (size_t)params->count * sizeof *t);
	struct manifest_piece *piece = manifest_take(m, (size_t)params->count * sizeof *piece);
	if (!f || !t || !piece || !manifest_set_run(m, run))
		return false;
	*f = (struct manifest_file){manifest_text(m, file), w->bytes, w->xxh3};
	m->file_count = 1;
	if (!f->name)
		return false;
	for (int i = 0; i < params->count; i++)
		for (int kind = 0; kind < 3; kind++, t++) {
			const struct param *p = &params->params[i];
			char name[PARAM_NAME + 8];
			snprintf(name, sizeof name, "%s/%s", kinds[kind], p->name);
			*t = (struct manifest_tensor){manifest_text(m, name), F32, p->dims, {0}, NULL, 0};
			memcpy(t->shape, p->shape, sizeof t->shape);
			if (!t->name)
				return false;
			m->tensor_count++;
			if (kind > 0)
				continue;
			*piece = (struct manifest_piece){0, t->name, box_whole(p->dims, p->shape)};
			t->pieces = piece++;
			t->piece_count = 1;
		}
	return true;
}

static bool write_folder(const struct import *im, const char *dir, const struct manifest_run *run, struct error *e)
{
	char temp[PATH_ROOM], name[STEP_NAME_ROOM], path[PATH_ROOM];
	struct safetensors_writer w;
	struct manifest m;
	checkpoint_file_name(name, 0);
	manifest_init(&m);
	int64_t bytes = param_total(&im->params) * (int64_t)sizeof(float) + 1024 * (int64_t)(im->params.count + 16);
	bool good = checkpoint_begin(dir, run->counters.step, bytes, temp, e);
	if (good && !file_join(path, temp, name))
		good = error_set(e, CODE_MACHINE, "%s: path too long", temp);
	good = good && write_weights(im, path, &w, e);
	if (good && !fill_manifest(&m, &im->params, run, name, &w))
		good = error_set(e, CODE_MACHINE, "%s: out of memory", temp);
	good = good && manifest_seal(&m, temp, CODE_MACHINE, e) &&
	       checkpoint_commit(dir, run->counters.step, temp, &m, e);
	if (!good)
		checkpoint_abandon(temp);
	manifest_finish(&m);
	return good;
}

bool import_gpt2(const char *input, const struct model_settings *m, const char *dir, const struct manifest_run *run,
		 struct error *e)
{
	struct import im = {0};
	if (!import_folder_open(&im.folder, input, "transformer.", e))
		return false;
	param_table_init(&im.params, m, F32, 1, 0);
	im.items = calloc((size_t)im.params.count, sizeof *im.items);
	bool good = im.items || error_set(e, CODE_MACHINE, "out of memory");
	good = good && find_all(&im, m, e) && write_folder(&im, dir, run, e);
	free(im.items);
	param_table_finish(&im.params);
	import_folder_close(&im.folder);
	return good;
}

#include "train/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/safetensors.h"

enum { BLOCK_BYTES = 1 << 16 };

struct manifest_block {
	struct manifest_block *next;
	size_t used, room;
	_Alignas(16) char bytes[];
};

struct manifest_counters manifest_counters(const struct scalars *s)
{
	return (struct manifest_counters){s->step,       s->updates,    s->samples,  s->tokens,
					  s->loss_scale, s->good_steps, s->overflows};
}

void manifest_restore(struct scalars *s, const struct manifest_counters *c)
{
	s->step = c->step;
	s->updates = c->updates;
	s->samples = c->samples;
	s->tokens = c->tokens;
	s->loss_scale = c->loss_scale;
	s->good_steps = c->good_steps;
	s->overflows = c->overflows;
}

void manifest_init(struct manifest *m)
{
	*m = (struct manifest){0};
}

void manifest_finish(struct manifest *m)
{
	for (struct manifest_block *b = m->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	manifest_init(m);
}

void *manifest_take(struct manifest *m, size_t bytes)
{
	bytes = (bytes + 15) / 16 * 16;
	struct manifest_block *b = m->blocks;
	if (!b || b->room - b->used < bytes) {
		size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
		b = calloc(1, sizeof *b + room);
		if (!b)
			return NULL;
		b->room = room;
		b->next = m->blocks;
		m->blocks = b;
	}
	void *out = b->bytes + b->used;
	b->used += bytes;
	return out;
}

const char *manifest_text(struct manifest *m, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *out = manifest_take(m, bytes);
	return out ? memcpy(out, text, bytes) : NULL;
}

static const struct config_pair *copy_pairs(struct manifest *m, const struct config_pair *pairs, int count)
{
	struct config_pair *copy = manifest_take(m, (size_t)count * sizeof *copy);
	for (int i = 0; i < count && copy; i++) {
		copy[i] = (struct config_pair){manifest_text(m, pairs[i].key), manifest_text(m, pairs[i].value)};
		if (!copy[i].key || !copy[i].value)
			return NULL;
	}
	return copy;
}

bool manifest_set_run(struct manifest *m, const struct manifest_run *run)
{
	struct manifest_source *sources = manifest_take(m, (size_t)run->source_count * sizeof *sources);
	if (!sources)
		return false;
	for (int i = 0; i < run->source_count; i++) {
		sources[i] = (struct manifest_source){manifest_text(m, run->sources[i].name), run->sources[i].samples};
		if (!sources[i].name)
			return false;
	}
	m->run = *run;
	m->run.sources = sources;
	m->run.settings = copy_pairs(m, run->settings, run->setting_count);
	m->run.tuning = copy_pairs(m, run->tuning, run->tuning_count);
	return m->run.settings && m->run.tuning;
}

static int tensor_by_name(const void *a, const void *b)
{
	const struct manifest_tensor *x = a, *y = b;
	return strcmp(x->name, y->name);
}

static int file_by_name(const void *a, const void *b)
{
	const struct manifest_file *const *x = a, *const *y = b;
	return strcmp((*x)->name, (*y)->name);
}

static int piece_by_place(const void *a, const void *b)
{
	const struct manifest_piece *x = a, *y = b;
	for (int i = 0; i < TENSOR_DIMS; i++)
		if (x->box.begin[i] != y->box.begin[i])
			return x->box.begin[i] < y->box.begin[i] ? -1 : 1;
	return x->file - y->file;
}

/* A name that stays inside the folder, hidden or not it may not be. */
static bool plain_name(const char *name)
{
	return name[0] && name[0] != '.' && strlen(name) < 256 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(name);
}

static bool seal_files(const struct manifest *m, const char *path, int code, struct error *e)
{
	const struct manifest_file **sorted = calloc((size_t)m->file_count + 1, sizeof(const struct manifest_file *));
	const char *twice = NULL;
	if (!sorted)
		return error_set(e, CODE_MACHINE, "%s: out of memory", path);
	for (int i = 0; i < m->file_count; i++)
		sorted[i] = &m->files[i];
	qsort(sorted, (size_t)m->file_count, sizeof *sorted, file_by_name);
	for (int i = 1; i < m->file_count && !twice; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			twice = sorted[i]->name;
	free(sorted);
	if (twice)
		return error_set(e, code, "%s: the file %.100s is listed twice", path, twice);
	for (int i = 0; i < m->file_count; i++) {
		if (!plain_name(m->files[i].name))
			return error_set(e, code, "%s: \"%.100s\" is not a file name that may be used", path,
					 m->files[i].name);
		if (m->files[i].bytes < 0)
			return error_set(e, code, "%s: the file %s has a negative size", path, m->files[i].name);
	}
	return true;
}

/* Equal element counts and no overlap mean that every element is there exactly once. Pieces are sorted by their first
 * row, so each is compared only with those that begin before its rows end. */
static bool seal_pieces(const struct manifest *m, struct manifest_tensor *t, const char *path, int code,
			struct error *e)
{
	struct box whole = box_whole(t->dims, t->shape), common;
	int64_t left = box_count(&whole);
	for (int i = 0; i < t->piece_count; i++) {
		const struct manifest_piece *p = &t->pieces[i];
		if (p->file < 0 || p->file >= m->file_count || p->box.dims != t->dims)
			return error_set(e, code, "%s: tensor \"%s\": a piece in no listed file or of other dimensions",
					 path, t->name);
		for (int d = 0; d < t->dims; d++)
			if (p->box.begin[d] < 0 || p->box.begin[d] >= p->box.end[d] || p->box.end[d] > t->shape[d])
				return error_set(e, code, "%s: tensor \"%s\": a piece in %s is not inside it", path,
						 t->name, m->files[p->file].name);
		if (box_count(&p->box) > left)
			return error_set(e, code, "%s: tensor \"%s\": its pieces hold more elements than it has", path,
					 t->name);
		left -= box_count(&p->box);
	}
	if (left > 0)
		return error_set(e, code, "%s: tensor \"%s\": %lld of its %lld elements are in no piece", path, t->name,
				 (long long)left, (long long)box_count(&whole));
	qsort(t->pieces, (size_t)t->piece_count, sizeof *t->pieces, piece_by_place);
	for (int i = 0; i < t->piece_count; i++)
		for (int j = i + 1; j < t->piece_count; j++) {
			const struct manifest_piece *a = &t->pieces[i], *b = &t->pieces[j];
			if (b->box.begin[0] >= a->box.end[0])
				break;
			if (box_intersect(&common, &a->box, &b->box))
				return error_set(e, code, "%s: tensor \"%s\": the pieces in %s and %s overlap", path,
						 t->name, m->files[a->file].name, m->files[b->file].name);
		}
	return true;
}

bool manifest_seal(struct manifest *m, const char *path, int code, struct error *e)
{
	if (!seal_files(m, path, code, e))
		return false;
	if (m->tensor_count > 0)
		qsort(m->tensors, (size_t)m->tensor_count, sizeof *m->tensors, tensor_by_name);
	for (int i = 0; i < m->tensor_count; i++) {
		struct manifest_tensor *t = &m->tensors[i];
		if (!t->name[0] || strlen(t->name) > 200)
			return error_set(e, code, "%s: a tensor name of %zu bytes", path, strlen(t->name));
		if (i > 0 && strcmp(t[-1].name, t->name) == 0)
			return error_set(e, code, "%s: tensor \"%s\" is listed twice", path, t->name);
		if (t->dims < 1 || t->dims > TENSOR_DIMS || !safetensors_type(t->dtype))
			return error_set(e, code, "%s: tensor \"%s\": not a type and 1 to %d dimensions", path, t->name,
					 TENSOR_DIMS);
		int64_t bytes = (int64_t)dtype_size(t->dtype);
		for (int d = 0; d < t->dims; d++)
			if (t->shape[d] < 1 || __builtin_mul_overflow(bytes, t->shape[d], &bytes))
				return error_set(e, code, "%s: tensor \"%s\": not a shape that a tensor can have", path,
						 t->name);
		if (t->piece_count > 0 && !seal_pieces(m, t, path, code, e))
			return false;
	}
	return true;
}

const struct manifest_tensor *manifest_find(const struct manifest *m, const char *name)
{
	struct manifest_tensor key = {.name = name};
	if (m->tensor_count == 0)
		return NULL;
	return bsearch(&key, m->tensors, (size_t)m->tensor_count, sizeof key, tensor_by_name);
}

const char *manifest_setting(const struct manifest *m, const char *key)
{
	for (int i = 0; i < m->run.setting_count; i++)
		if (strcmp(m->run.settings[i].key, key) == 0)
			return m->run.settings[i].value;
	return NULL;
}

void manifest_print_hash(char out[HASH_ROOM], uint64_t hash)
{
	snprintf(out, HASH_ROOM, "%016" PRIx64, hash);
}

bool manifest_parse_hash(uint64_t *hash, const char *text)
{
	if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return false;
	*hash = strtoull(text, NULL, 16);
	return true;
}

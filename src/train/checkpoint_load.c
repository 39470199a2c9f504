#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/checkpoint_records.h"
#include "train/safetensors.h"

/* Rows shorter than this are read with what lies between them in the file, longer ones alone. */
enum { ROW_BYTES = 1 << 16 };

/* Files kept open at a time. */
enum { OPEN_FILES = 32 };

struct load {
	const struct checkpoint_found *found;
	struct device *dev;
	char *file_part;  /* CHECKPOINT_CHUNK bytes: rows of a piece as they lie in the file */
	char *local_part; /* CHECKPOINT_CHUNK bytes: rows of a box as they lie on the device */
	struct safetensors open[OPEN_FILES];
	int file_of[OPEN_FILES]; /* −1: none */
	int next;                /* the slot to be used again when all are taken */
};

/* Calls f for parts of `part` that lie in one range of the dense array of `whole` of at most CHECKPOINT_CHUNK bytes:
 * `range` is that range as a box, `inside` the wanted part of it. d: the first dimension that may still be cut. */
typedef bool (*slab_function)(void *context, const struct box *inside, const struct box *range, struct error *e);

static bool slabs(const struct box *part, const struct box *whole, int d, int64_t size, slab_function f, void *context,
		  struct error *e)
{
	int64_t row = size; /* bytes of one index of dimension d */
	bool all = true;
	check(d < TENSOR_DIMS && d < whole->dims && whole->dims <= TENSOR_DIMS);
	for (int i = d + 1; i < whole->dims; i++) {
		row *= whole->end[i] - whole->begin[i];
		all = all && part->begin[i] == whole->begin[i] && part->end[i] == whole->end[i];
	}
	bool together = row <= (all ? CHECKPOINT_CHUNK : ROW_BYTES);
	int64_t step = together ? CHECKPOINT_CHUNK / row : 1;
	for (int64_t at = part->begin[d]; at < part->end[d]; at += step) {
		struct box inside = *part;
		inside.begin[d] = at;
		inside.end[d] = at + step < part->end[d] ? at + step : part->end[d];
		struct box range = *whole;
		for (int i = 0; i <= d; i++) {
			range.begin[i] = inside.begin[i];
			range.end[i] = inside.end[i];
		}
		if (together ? !f(context, &inside, &range, e) : !slabs(&inside, whole, d + 1, size, f, context, e))
			return false;
	}
	return true;
}

/* Where position `at` lies in the dense array of b, in elements. */
static int64_t offset_in(const struct box *b, const int64_t at[TENSOR_DIMS])
{
	int64_t offset = 0;
	for (int i = 0; i < b->dims; i++)
		offset = offset * (b->end[i] - b->begin[i]) + at[i] - b->begin[i];
	return offset;
}

static const struct safetensors *open_file(struct load *l, int file, struct error *e)
{
	char path[PATH_ROOM];
	for (int i = 0; i < OPEN_FILES; i++)
		if (l->file_of[i] == file)
			return &l->open[i];
	if (!file_join(path, l->found->path, l->found->manifest.files[file].name)) {
		error_set(e, CODE_CHECKPOINT, "%s: path too long", l->found->path);
		return NULL;
	}
	int slot = l->next;
	l->next = (l->next + 1) % OPEN_FILES;
	safetensors_close(&l->open[slot]);
	l->file_of[slot] = -1;
	if (!safetensors_open(&l->open[slot], path, e))
		return NULL;
	l->file_of[slot] = file;
	return &l->open[slot];
}

/* A piece being read into the buffer that holds box `to`. */
struct reading {
	struct load *load;
	const struct safetensors *file;
	const struct safetensors_tensor *tensor;
	const struct manifest_piece *piece;
	const struct box *to;
	size_t size;
};

static bool read_slab(void *context, const struct box *inside, const struct box *range, struct error *e)
{
	struct reading *r = context;
	int64_t first = offset_in(&r->piece->box, range->begin);
	if (!safetensors_read(r->file, r->tensor, first, box_count(range), r->load->file_part, e))
		return false;
	box_copy(r->load->local_part, r->to, r->load->file_part, range, inside, r->size);
	return true;
}

/* The part of box `to` that a piece has, into the local buffer. */
static bool read_piece(struct load *l, const struct manifest_tensor *t, const struct manifest_piece *p,
		       const struct box *to, struct error *e)
{
	struct box common;
	if (!box_intersect(&common, &p->box, to))
		return true;
	const struct safetensors *file = open_file(l, p->file, e);
	if (!file)
		return false;
	const struct safetensors_tensor *in = safetensors_find(file, p->key);
	bool same = in && in->dtype == t->dtype && in->dims == t->dims;
	for (int d = 0; d < t->dims && same; d++)
		same = in->shape[d] == p->box.end[d] - p->box.begin[d];
	if (!same)
		return error_set(e, CODE_CHECKPOINT,
				 "%s: has no tensor \"%.200s\" of the type and shape that the manifest says",
				 file->path, p->key);
	struct reading r = {l, file, in, p, to, dtype_size(t->dtype)};
	return slabs(&common, &p->box, 0, (int64_t)r.size, read_slab, &r, e);
}

/* An entry being filled. */
struct filling {
	struct load *load;
	const struct state_entry *entry;
	const struct manifest_tensor *tensor;
};

/* One range of the local array: put together on the host from all pieces, then written to the device at once. */
static bool fill_slab(void *context, const struct box *inside, const struct box *range, struct error *e)
{
	struct filling *f = context;
	const struct state_entry *s = f->entry;
	for (int i = 0; i < f->tensor->piece_count; i++)
		if (!read_piece(f->load, f->tensor, &f->tensor->pieces[i], inside, e))
			return false;
	char *to = (char *)s->local.data + offset_in(&s->box, range->begin) * (int64_t)dtype_size(s->dtype);
	dev_write(f->load->dev, Q_COPY, tensor_1d(to, s->dtype, box_count(range)), f->load->local_part);
	dev_finish(f->load->dev, dev_mark(f->load->dev, Q_COPY)); /* the buffer is used again */
	return true;
}

static bool load_entry(struct load *l, const struct state_entry *s, bool weights_only, struct error *e)
{
	const struct manifest_tensor *t = manifest_find(&l->found->manifest, s->name);
	bool zero = !t || t->piece_count == 0 || (weights_only && !record_is_weight(s->name));
	int64_t count = zero ? 0 : box_count(&s->box), all = tensor_count(s->local);
	if (all > count) {
		char *rest = (char *)s->local.data + count * (int64_t)dtype_size(s->dtype);
		dev_zero(l->dev, Q_COPY, tensor_1d(rest, s->dtype, all - count));
	}
	struct filling f = {l, s, t};
	return count == 0 || slabs(&s->box, &s->box, 0, (int64_t)dtype_size(s->dtype), fill_slab, &f, e);
}

/* Collective: every tensor of the run is in the checkpoint, and every tensor of the checkpoint in the run. */
static bool compare_all(const struct checkpoint_found *found, struct comm *world, const struct state *state,
			bool weights_only, struct error *e)
{
	struct record *records;
	int64_t count;
	if (!records_gather(world, state, &records, &count, e))
		return false;
	if (comm_rank(world) == 0)
		records_compare(found, records, count, weights_only, e);
	free(records);
	return comm_agree(world, e);
}

bool checkpoint_load(const struct checkpoint_found *found, struct comm *world, struct device *dev,
		     const struct state *state, bool weights_only, struct error *e)
{
	struct error local = {0};
	struct load *l = calloc(1, sizeof *l);
	char *buffers = malloc(2 * (size_t)CHECKPOINT_CHUNK);
	if (!l || !buffers)
		error_set(&local, CODE_MACHINE, "out of memory for the buffers of checkpoints");
	bool good = comm_agree(world, &local) && compare_all(found, world, state, weights_only, &local);
	if (good) {
		*l = (struct load){
			.found = found, .dev = dev, .file_part = buffers, .local_part = buffers + CHECKPOINT_CHUNK};
		for (int i = 0; i < OPEN_FILES; i++)
			l->file_of[i] = -1;
		for (int q = 0; q < QUEUES; q++)
			dev_wait(dev, Q_COPY, dev_mark(dev, (enum queue)q));
		for (int i = 0; i < state->count && local.code == 0; i++)
			load_entry(l, &state->entries[i], weights_only, &local);
		for (int i = 0; i < OPEN_FILES; i++)
			safetensors_close(&l->open[i]);
		for (int q = 0; q < QUEUES; q++)
			dev_wait(dev, (enum queue)q, dev_mark(dev, Q_COPY));
		good = comm_agree(world, &local);
	}
	free(buffers);
	free(l);
	if (!good)
		*e = local;
	return good;
}

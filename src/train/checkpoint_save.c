#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/checkpoint_records.h"
#include "train/safetensors.h"

struct checkpoint {
	char dir[PATH_ROOM];
	int64_t keep_last, keep_every;
	struct comm *world;
	struct device *dev;
	void *buffer; /* CHECKPOINT_CHUNK bytes */
};

/* What a rank writes: its owned entries in file order, and the same as the file's list of tensors. */
struct plan {
	const struct state_entry **entries;
	struct safetensors_tensor *tensors;
	char (*keys)[RECORD_KEY];
	int count;
	int64_t bytes;
};

/* What a rank wrote. */
struct written {
	int64_t bytes; /* 0: it owns nothing */
	uint64_t xxh3;
};

bool checkpoint_open(struct checkpoint **out, const struct checkpoint_options *options, struct comm *world,
		     struct device *dev, struct error *e)
{
	struct error local = {0};
	struct checkpoint *c = calloc(1, sizeof *c);
	if (c)
		c->buffer = malloc(CHECKPOINT_CHUNK);
	if (!c || !c->buffer) {
		error_set(&local, CODE_MACHINE, "out of memory for the buffer of checkpoints");
	} else if (strlen(options->dir) >= sizeof c->dir) {
		error_set(&local, CODE_MACHINE, "%s: path too long", options->dir);
	} else {
		memcpy(c->dir, options->dir, strlen(options->dir) + 1);
		c->keep_last = options->keep_last;
		c->keep_every = options->keep_every;
		c->world = world;
		c->dev = dev;
		if (comm_rank(world) == 0 && file_make_folder(c->dir, CODE_MACHINE, &local))
			checkpoint_clean(c->dir);
	}
	if (!comm_agree(world, &local)) {
		*e = local;
		checkpoint_close(c);
		return false;
	}
	struct sigaction now;
	if (sigaction(SIGXFSZ, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
		signal(SIGXFSZ, SIG_IGN);
	*out = c;
	return true;
}

void checkpoint_close(struct checkpoint *c)
{
	if (!c)
		return;
	free(c->buffer);
	free(c);
}

static void plan_finish(struct plan *p)
{
	free(p->entries);
	free(p->tensors);
	free(p->keys);
}

static bool first_of_name(const struct plan *p, const char *name)
{
	for (int i = 0; i < p->count; i++)
		if (strcmp(p->entries[i]->name, name) == 0)
			return false;
	return true;
}

static void plan_add(struct plan *p, const struct state *state, int entry)
{
	const struct state_entry *s = &state->entries[entry];
	struct safetensors_tensor *t = &p->tensors[p->count];
	record_key(p->keys[p->count], s->name, entry, first_of_name(p, s->name));
	*t = (struct safetensors_tensor){.name = p->keys[p->count], .dtype = s->dtype, .dims = s->dims};
	for (int d = 0; d < s->dims; d++)
		t->shape[d] = s->box.end[d] - s->box.begin[d];
	p->entries[p->count++] = s;
}

/* Wide types first, so that every tensor lies aligned in the file. */
static bool plan_make(struct plan *p, const struct state *state, struct error *e)
{
	size_t room = (size_t)state->count + 1;
	*p = (struct plan){calloc(room, sizeof *p->entries), calloc(room, sizeof *p->tensors),
			   calloc(room, sizeof *p->keys), 0, 0};
	if (!p->entries || !p->tensors || !p->keys)
		return error_set(e, CODE_MACHINE, "out of memory for a list of %d tensors", state->count);
	for (size_t size = 8; size >= 1; size /= 2)
		for (int i = 0; i < state->count; i++) {
			const struct state_entry *s = &state->entries[i];
			if (s->owner && box_count(&s->box) > 0 && dtype_size(s->dtype) == size)
				plan_add(p, state, i);
		}
	p->bytes = safetensors_layout(p->tensors, p->count);
	return true;
}

static bool write_entry(const struct checkpoint *c, struct safetensors_writer *w, const struct state_entry *s,
			struct error *e)
{
	int64_t count = box_count(&s->box), size = (int64_t)dtype_size(s->dtype), step = CHECKPOINT_CHUNK / size;
	for (int64_t at = 0; at < count; at += step) {
		int64_t n = count - at < step ? count - at : step;
		dev_read(c->dev, Q_COPY, c->buffer, tensor_1d((char *)s->local.data + at * size, s->dtype, n));
		dev_finish(c->dev, dev_mark(c->dev, Q_COPY));
		if (!safetensors_append(w, c->buffer, (size_t)(n * size), e))
			return false;
	}
	return true;
}

static bool write_file(const struct checkpoint *c, const char *temp, const struct plan *p, struct written *written,
		       struct error *e)
{
	char name[STEP_NAME_ROOM], path[PATH_ROOM];
	struct safetensors_writer w;
	*written = (struct written){0};
	if (p->count == 0)
		return true;
	checkpoint_file_name(name, comm_rank(c->world));
	if (!file_join(path, temp, name))
		return error_set(e, CODE_MACHINE, "%s: path too long", temp);
	if (!safetensors_create(&w, path, p->tensors, p->count, e))
		return false;
	bool good = true;
	for (int i = 0; i < p->count && good; i++)
		good = write_entry(c, &w, p->entries[i], e);
	if (!good || !safetensors_finish(&w, e)) {
		safetensors_abandon(&w);
		return false;
	}
	*written = (struct written){w.bytes, w.xxh3};
	return true;
}

/* Consecutive records of one name become one tensor; those that are owned and not empty its pieces. */
static bool add_tensors(struct manifest *m, const struct record *records, int64_t count, const int *file_of)
{
	m->tensors = manifest_take(m, (size_t)count * sizeof *m->tensors);
	struct manifest_piece *pieces = manifest_take(m, (size_t)count * sizeof *pieces);
	if (!m->tensors || !pieces)
		return false;
	for (int64_t i = 0, end; i < count; i = end) {
		const struct record *first = &records[i];
		struct manifest_tensor *t = &m->tensors[m->tensor_count++];
		*t = (struct manifest_tensor){manifest_text(m, first->name), first->dtype, first->dims, {0}, pieces, 0};
		if (!t->name)
			return false;
		memcpy(t->shape, first->shape, sizeof t->shape);
		int key_rank = -1;
		for (end = i; end < count && strcmp(records[end].name, first->name) == 0; end++) {
			const struct record *r = &records[end];
			char key[RECORD_KEY];
			check(r->dtype == first->dtype && r->dims == first->dims &&
			      memcmp(r->shape, first->shape, sizeof r->shape) == 0);
			if (!r->owner || box_count(&r->box) == 0)
				continue;
			record_key(key, r->name, r->entry, r->rank != key_rank);
			key_rank = r->rank;
			*pieces = (struct manifest_piece){file_of[r->rank], manifest_text(m, key), r->box};
			if (!pieces++->key)
				return false;
			t->piece_count++;
		}
	}
	return true;
}

static bool add_files(struct manifest *m, const struct written *written, int ranks, int *file_of)
{
	m->files = manifest_take(m, (size_t)ranks * sizeof *m->files);
	if (!m->files)
		return false;
	for (int r = 0; r < ranks; r++) {
		char name[STEP_NAME_ROOM];
		if (written[r].bytes == 0)
			continue;
		checkpoint_file_name(name, r);
		file_of[r] = m->file_count;
		m->files[m->file_count++] =
			(struct manifest_file){manifest_text(m, name), written[r].bytes, written[r].xxh3};
		if (!m->files[file_of[r]].name)
			return false;
	}
	return true;
}

/* Rank 0: from what all ranks wrote to a folder that counts. */
static bool finish(const struct checkpoint *c, const char *temp, const struct manifest_run *run,
		   const struct written *written, const struct record *records, int64_t count, struct error *e)
{
	struct manifest m;
	int ranks = comm_size(c->world);
	manifest_init(&m);
	int *file_of = calloc((size_t)ranks, sizeof *file_of);
	bool good = file_of && manifest_set_run(&m, run) && add_files(&m, written, ranks, file_of) &&
		    add_tensors(&m, records, count, file_of);
	if (!good)
		error_set(e, CODE_MACHINE, "out of memory for a manifest of %lld pieces", (long long)count);
	for (int i = 0; i < m.tensor_count && good; i++)
		if (m.tensors[i].piece_count == 0) /* would say that it is zero */
			good = error_set(e, CODE_MACHINE, "tensor \"%s\" belongs to no rank", m.tensors[i].name);
	good = good && manifest_seal(&m, temp, CODE_MACHINE, e) &&
	       checkpoint_commit(c->dir, run->counters.step, temp, &m, e);
	manifest_finish(&m);
	free(file_of);
	return good;
}

/* The steps that all ranks take together; each ends with one agreement. */
static bool save(struct checkpoint *c, const struct plan *p, const struct state *state, const struct manifest_run *run,
		 struct written *written, char temp[PATH_ROOM], struct error *e)
{
	int rank = comm_rank(c->world), ranks = comm_size(c->world);
	/* The header takes about a hundred bytes a tensor besides its name, the manifest as much again. */
	struct written mine = {.bytes = p->bytes + 1024 * (int64_t)(p->count + 16)};
	comm_host_gather(c->world, written, &mine, sizeof mine);
	int64_t total = 0;
	for (int r = 0; r < ranks; r++)
		total += written[r].bytes;
	if (rank == 0)
		checkpoint_begin(c->dir, run->counters.step, total, temp, e);
	comm_host_broadcast(c->world, temp, PATH_ROOM, 0);
	if (!comm_agree(c->world, e))
		return false;

	write_file(c, temp, p, &mine, e);
	if (!comm_agree(c->world, e))
		return false;

	struct record *records;
	int64_t count;
	comm_host_gather(c->world, written, &mine, sizeof mine);
	if (!records_gather(c->world, state, &records, &count, e))
		return false;
	if (rank == 0)
		finish(c, temp, run, written, records, count, e);
	free(records);
	return comm_agree(c->world, e);
}

bool checkpoint_save(struct checkpoint *c, const struct state *state, const struct manifest_run *run, struct error *e)
{
	struct error local = {0};
	struct plan p;
	char temp[PATH_ROOM] = "";
	bool first = comm_rank(c->world) == 0;
	struct written *written = calloc((size_t)comm_size(c->world), sizeof *written);
	if (plan_make(&p, state, &local) && !written)
		error_set(&local, CODE_MACHINE, "out of memory for %d ranks", comm_size(c->world));
	for (int q = 0; q < QUEUES; q++)
		dev_wait(c->dev, Q_COPY, dev_mark(c->dev, (enum queue)q));
	bool good = comm_agree(c->world, &local) && save(c, &p, state, run, written, temp, &local);
	if (first && !good)
		checkpoint_abandon(temp);
	if (first && good)
		checkpoint_prune(c->dir, run->counters.step, c->keep_last, c->keep_every);
	plan_finish(&p);
	free(written);
	if (!good)
		*e = local;
	return good;
}

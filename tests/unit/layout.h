/* layout.h: a small state that knows the right value of every element, cut over ranks in several ways. */
#ifndef MTRAIN_TESTS_LAYOUT_H
#define MTRAIN_TESTS_LAYOUT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/device.h"
#include "team.h"
#include "train/state.h"

struct made {
	const char *name;
	enum dtype dtype;
	int dims;
	int64_t shape[TENSOR_DIMS];
	int split;    /* dimension that tensor ranks share; −1: each has all */
	int64_t pads; /* rows that memory has behind the box */
};

/* The wide one has rows longer than a buffer of the loader, and is cut inside them. */
static const struct made made[] = {
	{"weight/qkv", F32, 4, {4, 3, 8, 16}, 0, 0},  {"weight/out", F32, 3, {16, 4, 8}, 1, 0},
	{"weight/wide", F64, 2, {2, 540000}, 1, 0},  {"weight/vocab", F32, 2, {257, 16}, 0, 7},
	{"m/bias", F32, 1, {20}, -1, 0},              {"v/bias", F64, 1, {20}, -1, 0},
	{"weight/half", F16, 2, {24, 5}, 0, 1},       {"weight/long", F32, 3, {1100, 4, 60}, 1, 0},
	{"count", I64, 1, {1}, -1, 0},                {"weight/rows", U8, 2, {5, 3}, 0, 0},
};
enum { MADE = sizeof made / sizeof made[0], MADE_WIDE = 2, MADE_LONG = 7 };

/* How the state lies on ranks: data × tensor × pipeline; stage s has every tensor with number % pipeline = s. `flat`:
 * instead each tensor's elements are dealt out to the ranks in equal runs, as their minimal boxes. */
struct layout {
	int data, tensor, pipeline;
	bool flat;
};

static inline int layout_ranks(const struct layout *l)
{
	return l->data * l->tensor * l->pipeline;
}

/* Element `number` of a tensor, byte by byte. */
static inline void made_value(unsigned char *out, const struct made *t, int64_t number)
{
	uint64_t h = ((uint64_t)number + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(t - made) * 0xD1B54A32D192ED03u;
	h ^= h >> 29;
	memcpy(out, &h, dtype_size(t->dtype));
}

struct making {
	const struct made *t;
	unsigned char *local;
	bool right; /* compares instead of writing */
	bool write;
};

static inline void made_run(void *context, int64_t global, int64_t local, int64_t count)
{
	struct making *m = context;
	size_t size = dtype_size(m->t->dtype);
	unsigned char value[8];
	for (int64_t i = 0; i < count; i++) {
		unsigned char *at = m->local + (size_t)(local + i) * size;
		made_value(value, m->t, global + i);
		if (m->write)
			memcpy(at, value, size);
		else if (memcmp(at, value, size) != 0)
			m->right = false;
	}
}

/* Writes the values of all entries, or with write false compares: true if every box holds them and what is behind it
 * is zero. Reads device memory, which here is the host's. */
static inline bool layout_values(const struct state *s, bool write, bool zero)
{
	bool right = true;
	for (int i = 0; i < s->count; i++) {
		const struct state_entry *e = &s->entries[i];
		const struct made *t = made;
		while (strcmp(t->name, e->name) != 0)
			t++;
		struct making m = {t, e->local.data, true, write};
		size_t used = (size_t)box_count(&e->box) * dtype_size(t->dtype), all = tensor_bytes(e->local);
		if (write)
			memset(e->local.data, 0xa5, all);
		if (zero)
			used = 0;
		else if (used > 0)
			box_runs(&e->box, e->shape, made_run, &m);
		for (size_t b = used; b < all && !write; b++)
			right = right && m.local[b] == 0;
		right = right && m.right;
	}
	return right;
}

static inline void layout_add(struct state *s, struct device *dev, const struct made *t, const struct box *box,
			      bool owner)
{
	struct error e;
	struct state_entry entry = {.dtype = t->dtype, .dims = t->dims, .box = *box, .owner = owner};
	int64_t size[TENSOR_DIMS];
	snprintf(entry.name, sizeof entry.name, "%s", t->name);
	memcpy(entry.shape, t->shape, sizeof entry.shape);
	entry.optional = t->name[0] == 'm';
	for (int d = 0; d < t->dims; d++)
		size[d] = box->end[d] - box->begin[d];
	for (int d = t->dims; d < TENSOR_DIMS; d++)
		entry.shape[d] = 1;
	size[0] += t->pads;
	entry.local = tensor_of(NULL, t->dtype, t->dims, size);
	check(dev_take(dev, &entry.local.data, tensor_bytes(entry.local), &e));
	memset(entry.local.data, 0x5a, tensor_bytes(entry.local));
	state_add(s, &entry);
}

/* The boxes that elements begin … end of a row-major tensor are, few as can be: a part row, whole rows, a part row, in
 * each dimension. */
static inline void layout_flat(struct state *s, struct device *dev, const struct made *t, struct box b, int d,
			       int64_t begin, int64_t end)
{
	int64_t inner = 1;
	if (begin >= end)
		return;
	for (int i = d + 1; i < t->dims; i++)
		inner *= t->shape[i];
	int64_t first = begin / inner, last = (end - 1) / inner;
	if (begin % inner == 0 && end % inner == 0) {
		b.begin[d] = first;
		b.end[d] = last + 1;
		layout_add(s, dev, t, &b, true);
		return;
	}
	int64_t whole_begin = (begin + inner - 1) / inner, whole_end = end / inner;
	struct box row = b;
	row.begin[d] = first;
	row.end[d] = first + 1;
	if (first == last) {
		layout_flat(s, dev, t, row, d + 1, begin - first * inner, end - first * inner);
		return;
	}
	if (begin % inner)
		layout_flat(s, dev, t, row, d + 1, begin - first * inner, inner);
	layout_flat(s, dev, t, b, d, whole_begin * inner, whole_end * inner);
	row.begin[d] = last;
	row.end[d] = last + 1;
	if (end % inner)
		layout_flat(s, dev, t, row, d + 1, 0, end - last * inner);
}

/* The state of one rank. small: without the two large tensors. */
static inline void layout_build(struct state *s, const struct layout *l, struct member *m, bool small)
{
	int tensor = m->rank % l->tensor, data = m->rank / l->tensor % l->data, stage = m->rank / l->tensor / l->data;
	state_init(s);
	for (int i = 0; i < MADE; i++) {
		const struct made *t = &made[i];
		struct box box = box_whole(t->dims, t->shape);
		if (small && (i == MADE_WIDE || i == MADE_LONG))
			continue;
		if (l->flat) {
			int64_t count = box_count(&box), ranks = m->ranks;
			layout_flat(s, m->dev, t, box, 0, count * m->rank / ranks, count * (m->rank + 1) / ranks);
			continue;
		}
		if (i % l->pipeline != stage)
			continue;
		if (t->split >= 0) {
			int64_t size = t->shape[t->split], each = (size + l->tensor - 1) / l->tensor;
			int64_t begin = each * tensor < size ? each * tensor : size;
			box.begin[t->split] = begin;
			box.end[t->split] = begin + each < size ? begin + each : size;
		}
		layout_add(s, m->dev, t, &box, data == 0 && (t->split >= 0 || tensor == 0));
	}
}

#endif

#include "model/param.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t param_padded_vocab(int64_t vocab, int tensor)
{
	int64_t multiple = (int64_t)VOCAB_MULTIPLE * tensor;
	return (vocab + multiple - 1) / multiple * multiple;
}

static bool is_vocabulary(const struct param *p)
{
	return p->split == 0 && p->dims == 2 && (p->layer < 0 || strcmp(p->name, "head.weight") == 0);
}

/* The shape of what a tensor rank has of p, with padding. */
static void local_shape(const struct param_table *t, const struct param *p, int64_t local[TENSOR_DIMS])
{
	memcpy(local, p->shape, TENSOR_DIMS * sizeof *local);
	if (p->split == PARAM_WHOLE)
		return;
	int64_t size = is_vocabulary(p) ? param_padded_vocab(p->shape[p->split], t->tensor) : p->shape[p->split];
	check(size % t->tensor == 0);
	local[p->split] = size / t->tensor;
}

static int64_t round_up(int64_t n, int64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* Places p, or all parameters of its layer, behind one another from element `at` on; those that tensor ranks have whole, or
 * the others. Returns the end. */
static int64_t place(struct param_table *t, const struct param *p, bool alone, bool whole, int64_t at)
{
	int first = (int)(p - t->params), end = first + 1;
	if (!alone && p->layer < 0) { /* those stand at both ends of the table; a layer's stand together */
		first = 0;
		end = t->count;
	} else if (!alone) {
		while (first > 0 && t->params[first - 1].layer == p->layer)
			first--;
		while (end < t->count && t->params[end].layer == p->layer)
			end++;
	}
	for (int i = first; i < end; i++) {
		struct param *q = &t->params[i];
		int64_t local[TENSOR_DIMS];
		if ((!alone && q->layer != p->layer) || (q->split == PARAM_WHOLE) != whole)
			continue;
		local_shape(t, q, local);
		q->bucket = t->bucket_count;
		q->at = at;
		at += round_up(tensor_count(tensor_of(NULL, t->dtype, q->dims, local)), PARAM_ALIGN);
	}
	return at;
}

/* Opens p's bucket where it is not open yet. */
static void open_bucket(struct param_table *t, struct memory *memory, const struct param *p, bool copy)
{
	for (int i = t->bucket_count - 1; i >= 0; i--)
		if (t->buckets[i].layer == p->layer && !copy)
			return;
	struct param_bucket *b = &t->buckets[t->bucket_count];
	*b = (struct param_bucket){.layer = p->layer, .copy = copy};
	b->whole = place(t, p, copy, true, 0);
	int64_t count = round_up(place(t, p, copy, false, b->whole), (int64_t)PARAM_ALIGN * t->slices);
	b->weights = arena_1d(&memory->arena[MEMORY_WEIGHTS], t->dtype, count);
	if (!t->frozen)
		b->grads = arena_1d(&memory->arena[MEMORY_GRADIENTS], dtype_sum(t->dtype), count);
	t->bucket_count++;
}

static struct tensor part_of(struct tensor bucket, const struct param *p, const int64_t local[TENSOR_DIMS])
{
	struct tensor part = tensor_of(NULL, bucket.dtype, p->dims, local);
	part.data = tensor_rows(bucket, p->at, tensor_count(part)).data;
	return part;
}

struct param *param_use(struct param_table *t, struct memory *memory, bool copy, const char *format, ...)
{
	char name[PARAM_NAME];
	va_list args;
	va_start(args, format);
	vsnprintf(name, sizeof name, format, args);
	va_end(args);
	struct param *p = NULL;
	for (int i = 0; i < t->count && !p; i++) {
		int at = (t->next + i) % t->count;
		if (strcmp(t->params[at].name, name) == 0)
			p = &t->params[at];
	}
	check(p && !p->here);
	t->next = (int)(p - t->params) + 1;

	int64_t local[TENSOR_DIMS];
	local_shape(t, p, local);
	p->box = box_whole(p->dims, p->shape);
	if (p->split != PARAM_WHOLE) {
		int64_t true_size = p->shape[p->split];
		int64_t begin = local[p->split] * t->tensor_rank, end = begin + local[p->split];
		p->box.begin[p->split] = begin < true_size ? begin : true_size;
		p->box.end[p->split] = end < true_size ? end : true_size;
	}
	p->here = true;
	p->owner = !copy && (p->split != PARAM_WHOLE || t->tensor_rank == 0);
	open_bucket(t, memory, p, copy);
	p->weight = part_of(t->buckets[p->bucket].weights, p, local);
	if (!t->frozen)
		p->grad = part_of(t->buckets[p->bucket].grads, p, local);
	return p;
}

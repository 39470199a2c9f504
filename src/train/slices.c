#include "train/slices.h"

#include <stdlib.h>
#include <string.h>

/* What the slice from `begin` on, `count` elements long, has of a parameter. */
static bool cut(struct slices_piece *piece, const struct param *p, int64_t begin, int64_t count)
{
	int64_t first = p->at > begin ? p->at : begin;
	int64_t end = p->at + tensor_count(p->weight), slice_end = begin + count;
	end = end < slice_end ? end : slice_end;
	*piece = (struct slices_piece){.param = p, .begin = first - p->at, .count = end - first, .at = first - begin};
	return piece->count > 0;
}

/* What the rank's slice of its bucket has of a parameter. */
static bool cut_of(struct slices_piece *piece, const struct slices *s, const struct param_table *t, const struct param *p)
{
	if (!p->here)
		return false;
	int64_t count = tensor_count(t->buckets[p->bucket].weights) / s->count;
	return cut(piece, p, s->rank * count, count);
}

void slices_init(struct slices *s, const struct param_table *t, int rank)
{
	check(rank >= 0 && rank < t->slices);
	*s = (struct slices){.count = t->slices, .rank = rank};
	s->pieces = calloc((size_t)t->count, sizeof *s->pieces);
	s->first = calloc((size_t)t->bucket_count + 1, sizeof *s->first);
	check(s->pieces && s->first);
	/* By buckets, in each by the table: counted first, then put where they belong. */
	for (int i = 0; i < t->count; i++) {
		struct slices_piece piece;
		if (cut_of(&piece, s, t, &t->params[i]))
			s->first[t->params[i].bucket + 1]++;
	}
	for (int b = 0; b < t->bucket_count; b++)
		s->first[b + 1] += s->first[b];
	s->pieces_count = s->first[t->bucket_count];
	for (int i = t->count - 1; i >= 0; i--) { /* leaves first[b + 1] where bucket b begins */
		struct slices_piece piece;
		if (cut_of(&piece, s, t, &t->params[i]))
			s->pieces[--s->first[t->params[i].bucket + 1]] = piece;
	}
	memmove(s->first, s->first + 1, (size_t)t->bucket_count * sizeof *s->first);
	s->first[t->bucket_count] = s->pieces_count;
}

void slices_finish(struct slices *s)
{
	free(s->pieces);
	free(s->first);
	*s = (struct slices){0};
}

struct tensor slices_own(const struct slices *s, struct tensor bucket)
{
	int64_t count = tensor_count(bucket) / s->count;
	return tensor_rows(bucket, s->rank * count, count);
}

struct tensor slices_part(const struct slices_piece *p, struct tensor slice)
{
	return tensor_rows(slice, p->at, p->count);
}

#include "train/slices.h"

#include <stdlib.h>

/* What the slice from `begin` on, `count` elements long, has of a parameter. */
static bool cut(struct slices_piece *piece, const struct param *p, int64_t begin, int64_t count)
{
	int64_t first = p->at > begin ? p->at : begin;
	int64_t end = p->at + tensor_count(p->weight), slice_end = begin + count;
	end = end < slice_end ? end : slice_end;
	*piece = (struct slices_piece){.param = p, .begin = first - p->at, .count = end - first, .at = first - begin};
	return piece->count > 0;
}

void slices_init(struct slices *s, const struct param_table *t, int rank)
{
	check(rank >= 0 && rank < t->slices);
	*s = (struct slices){.count = t->slices, .rank = rank};
	s->pieces = calloc((size_t)t->count, sizeof *s->pieces);
	s->first = calloc((size_t)t->bucket_count + 1, sizeof *s->first);
	check(s->pieces && s->first);
	for (int b = 0; b < t->bucket_count; b++) {
		int64_t count = tensor_count(t->buckets[b].weights) / s->count;
		for (int i = 0; i < t->count; i++) {
			const struct param *p = &t->params[i];
			if (p->here && p->bucket == b && cut(&s->pieces[s->pieces_count], p, rank * count, count))
				s->pieces_count++;
		}
		s->first[b + 1] = s->pieces_count;
	}
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

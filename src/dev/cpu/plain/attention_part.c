#include "dev/cpu/plain/heads.h"

/* What both directions see of a call. */
struct part {
	struct heads at;
	struct tensor qkv, kv, slopes;
	const struct span *queries, *keys;
	int64_t batch;
	real scale;
};

static struct part part_of(struct tensor qkv, struct tensor kv, struct tensor slopes, double scale,
			   const struct span *queries, const struct span *keys)
{
	return (struct part){heads_of(qkv, kv, keys->length), qkv, kv, slopes, queries, keys, qkv.shape[0] / keys->length,
			     (real)scale};
}

static bool sees(const struct part *s, int64_t t, int64_t u)
{
	return span_place(s->keys, u) <= span_place(s->queries, t);
}

static real score(const struct part *s, int64_t b, int64_t h, int64_t t, int64_t u)
{
	real x = s->scale * dot(s->qkv, query_at(&s->at, b * s->at.length + t, h), s->kv, key_at(&s->at, b * s->at.length + u, h), s->at.size);
	int64_t behind = span_place(s->queries, t) - span_place(s->keys, u);
	return tensor_given(s->slopes) ? x - get(s->slopes, h) * (real)behind : x;
}

/* What p_tu is multiplied by. head: its global number. */
static real mask(struct device *dev, const struct dropout *d, const struct part *s, int64_t b, int64_t head, int64_t t,
		 int64_t u)
{
	if (d->rate == 0)
		return 1;
	int64_t row = head * s->keys->sequence + span_place(s->queries, t);
	return dropout_factor(d, dev->scalars->samples + d->span.sample + b, row * s->keys->sequence + span_place(s->keys, u));
}

/* One query: the largest score first, then exp relative to it, so that nothing overflows. Keys in the order of their rows
 * are in the order of their tokens, so a query sees the first ones of them. */
static void forward_row(struct device *dev, const struct op_attention_part_forward *a, const struct part *s, int64_t b,
			int64_t h, int64_t t)
{
	int64_t lse = lse_at(&s->at, b, h, t), out = out_at(&s->at, b * s->at.length + t, h), seen = 0;
	real most = -INFINITY, total = 0, sums[HEAD_SIZE_MAX] = {0};

	if (a->fresh) {
		put(a->lse, lse, -INFINITY);
		for (int64_t d = 0; d < s->at.size; d++)
			put(a->sum, out + d, 0);
	}
	while (seen < s->at.length && sees(s, t, seen)) {
		real x = score(s, b, h, t, seen++);
		if (!(x <= most))
			most = x;
	}
	if (seen == 0)
		return;
	for (int64_t u = 0; u < seen; u++) {
		real e = MATH(exp)(score(s, b, h, t, u) - most), factor = mask(dev, &a->dropout, s, b, a->first_head + h, t, u);
		real kept = rounded(a->qkv.dtype, e * factor);
		total += e;
		for (int64_t d = 0; d < s->at.size; d++)
			sums[d] += kept * get(a->kv, value_at(&s->at, b * s->at.length + u, h) + d);
	}
	real before = get(a->lse, lse), here = most + MATH(log)(total), top = before > here ? before : here;
	real all = top + MATH(log)(MATH(exp)(before - top) + MATH(exp)(here - top));
	put(a->lse, lse, all);
	for (int64_t d = 0; d < s->at.size; d++)
		put(a->sum, out + d, MATH(exp)(before - all) * get(a->sum, out + d) + MATH(exp)(here - all) * (sums[d] / total));
}

void PLAIN(attention_part_forward)(struct device *dev, const struct op_attention_part_forward *a)
{
	struct part s = part_of(a->qkv, a->kv, a->slopes, a->scale, &a->dropout.span, &a->keys);

	for (int64_t b = 0; b < s.batch; b++)
		for (int64_t h = 0; h < s.at.groups * s.at.per_group; h++)
			for (int64_t t = 0; t < s.at.length; t++)
				forward_row(dev, a, &s, b, h, t);
}

struct pair {
	real kept; /* p'_tu */
	real ds;   /* ds_tu */
};

static struct pair backward_pair(struct device *dev, const struct op_attention_part_backward *a, const struct part *s,
				 int64_t b, int64_t h, int64_t t, int64_t u)
{
	int64_t lse = lse_at(&s->at, b, h, t);
	real p = MATH(exp)(score(s, b, h, t, u) - get(a->lse, lse));
	real factor = mask(dev, &a->dropout, s, b, a->first_head + h, t, u);
	real dp = factor * dot(a->dout, out_at(&s->at, b * s->at.length + t, h), a->kv, value_at(&s->at, b * s->at.length + u, h), s->at.size);
	return (struct pair){rounded(a->qkv.dtype, p * factor), rounded(a->qkv.dtype, p * (dp - get(a->delta, lse)))};
}

static void backward_query(struct device *dev, const struct op_attention_part_backward *a, const struct part *s, int64_t b,
			   int64_t h, int64_t t)
{
	real sums[HEAD_SIZE_MAX] = {0};

	for (int64_t u = 0; u < s->at.length && sees(s, t, u); u++) {
		real ds = backward_pair(dev, a, s, b, h, t, u).ds;
		for (int64_t d = 0; d < s->at.size; d++)
			sums[d] += ds * get(a->kv, key_at(&s->at, b * s->at.length + u, h) + d);
	}
	for (int64_t d = 0; d < s->at.size; d++)
		add_to(a->dq, out_at(&s->at, b * s->at.length + t, h) + d, s->scale * sums[d]);
}

static void backward_key(struct device *dev, const struct op_attention_part_backward *a, const struct part *s, int64_t b,
			 int64_t group, int64_t u)
{
	int64_t first = group * s->at.per_group;
	real dk[HEAD_SIZE_MAX] = {0}, dv[HEAD_SIZE_MAX] = {0};

	for (int64_t h = first; h < first + s->at.per_group; h++)
		for (int64_t t = 0; t < s->at.length; t++) {
			if (!sees(s, t, u))
				continue;
			struct pair pair = backward_pair(dev, a, s, b, h, t, u);
			for (int64_t d = 0; d < s->at.size; d++) {
				dk[d] += pair.ds * get(a->qkv, query_at(&s->at, b * s->at.length + t, h) + d);
				dv[d] += pair.kept * get(a->dout, out_at(&s->at, b * s->at.length + t, h) + d);
			}
		}
	for (int64_t d = 0; d < s->at.size; d++) {
		add_to(a->dkv, key_at(&s->at, b * s->at.length + u, first) + d, s->scale * dk[d]);
		add_to(a->dkv, value_at(&s->at, b * s->at.length + u, first) + d, dv[d]);
	}
}

void PLAIN(attention_part_backward)(struct device *dev, const struct op_attention_part_backward *a)
{
	struct part s = part_of(a->qkv, a->kv, a->slopes, a->scale, &a->dropout.span, &a->keys);

	for (int64_t b = 0; b < s.batch; b++) {
		for (int64_t h = 0; h < s.at.groups * s.at.per_group; h++)
			for (int64_t t = 0; t < s.at.length; t++)
				backward_query(dev, a, &s, b, h, t);
		for (int64_t group = 0; group < s.at.groups; group++)
			for (int64_t u = 0; u < s.at.length; u++)
				backward_key(dev, a, &s, b, group, u);
	}
}

void PLAIN(attention_delta)(struct device *dev, const struct op_attention_delta *a)
{
	int64_t heads = a->dout.shape[1], size = a->dout.shape[2], length = a->delta.shape[2];

	for (int64_t n = 0; n < a->dout.shape[0]; n++)
		for (int64_t h = 0; h < heads; h++) {
			int64_t at = (n * heads + h) * size;
			put(a->delta, (n / length * heads + h) * length + n % length, dot(a->dout, at, a->out, at, size));
		}
}

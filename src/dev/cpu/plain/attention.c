#include "dev/cpu/plain/heads.h"

/* s_tu of head h in the sequence whose first token is row n. */
static real score_of(struct tensor qkv, struct tensor slopes, double scale, const struct heads *s, int64_t n, int64_t h, int64_t t,
		     int64_t u)
{
	real score = (real)scale * dot(qkv, query_at(s, n + t, h), qkv, key_at(s, n + u, h), s->size);
	return tensor_given(slopes) ? score - get(slopes, h) * (real)(t - u) : score;
}

/* What p_tu of head h in sequence b is multiplied by. */
static real mask(struct device *dev, const struct dropout *d, const struct heads *s, int64_t b, int64_t head, int64_t t,
		 int64_t u)
{
	if (d->rate == 0)
		return 1;
	return dropout_factor(d, dev->scalars->samples + d->span.sample + b, (head * s->length + t) * s->length + u);
}

/* One query: the largest score first, then exp relative to it, so that nothing overflows. */
static void forward_row(struct device *dev, const struct op_attention_forward *a, const struct heads *s, int64_t b,
			int64_t h, int64_t t)
{
	int64_t n = b * s->length; /* row of the sequence's first token */
	int64_t out = out_at(s, n + t, h);
	real most = -INFINITY, total = 0, sums[HEAD_SIZE_MAX] = {0};

	for (int64_t u = 0; u <= t; u++) {
		real score = score_of(a->qkv, a->slopes, a->scale, s, n, h, t, u);
		if (!(score <= most))
			most = score;
	}
	for (int64_t u = 0; u <= t; u++) {
		real score = score_of(a->qkv, a->slopes, a->scale, s, n, h, t, u);
		real e = MATH(exp)(score - most), kept = e * mask(dev, &a->dropout, s, b, a->first_head + h, t, u);
		total += e;
		for (int64_t d = 0; d < s->size; d++)
			sums[d] += kept * get(a->qkv, value_at(s, n + u, h) + d);
	}
	put(a->lse, lse_at(s, b, h, t), most + MATH(log)(total));
	for (int64_t d = 0; d < s->size; d++)
		put(a->out, out + d, sums[d] / total);
}

void PLAIN(attention_forward)(struct device *dev, const struct op_attention_forward *a)
{
	struct heads s = heads_of(a->qkv, a->qkv, a->sequence);
	int64_t batch = a->qkv.shape[0] / s.length;

	for (int64_t b = 0; b < batch; b++)
		for (int64_t h = 0; h < s.groups * s.per_group; h++)
			for (int64_t t = 0; t < s.length; t++)
				forward_row(dev, a, &s, b, h, t);
}

struct pair {
	real kept; /* p'_tu */
	real ds;   /* ds_tu */
};

/* Query t against key u: p is rebuilt from lse, so that no [T, T] memory is kept. */
static struct pair backward_pair(struct device *dev, const struct op_attention_backward *a, const struct heads *s,
				 int64_t b, int64_t h, int64_t t, int64_t u)
{
	int64_t n = b * s->length, lse = lse_at(s, b, h, t);
	real score = score_of(a->qkv, a->slopes, a->scale, s, n, h, t, u);
	real p = MATH(exp)(score - get(a->lse, lse));
	real factor = mask(dev, &a->dropout, s, b, a->first_head + h, t, u);
	real dp = dot(a->dout, out_at(s, n + t, h), a->qkv, value_at(s, n + u, h), s->size) * factor;
	return (struct pair){p * factor, p * (dp - get(a->delta, lse))};
}

static void backward_query(struct device *dev, const struct op_attention_backward *a, const struct heads *s, int64_t b,
			   int64_t h, int64_t t)
{
	int64_t n = b * s->length;
	real sums[HEAD_SIZE_MAX] = {0};

	for (int64_t u = 0; u <= t; u++) {
		real ds = backward_pair(dev, a, s, b, h, t, u).ds;
		for (int64_t d = 0; d < s->size; d++)
			sums[d] += ds * get(a->qkv, key_at(s, n + u, h) + d);
	}
	for (int64_t d = 0; d < s->size; d++)
		put(a->dqkv, query_at(s, n + t, h) + d, (real)a->scale * sums[d]);
}

/* Key and value u of a group: summed over the group's heads and the queries that see u. */
static void backward_key(struct device *dev, const struct op_attention_backward *a, const struct heads *s, int64_t b,
			 int64_t group, int64_t u)
{
	int64_t n = b * s->length, first = group * s->per_group;
	real dk[HEAD_SIZE_MAX] = {0}, dv[HEAD_SIZE_MAX] = {0};

	for (int64_t h = first; h < first + s->per_group; h++)
		for (int64_t t = u; t < s->length; t++) {
			struct pair pair = backward_pair(dev, a, s, b, h, t, u);
			for (int64_t d = 0; d < s->size; d++) {
				dk[d] += pair.ds * get(a->qkv, query_at(s, n + t, h) + d);
				dv[d] += pair.kept * get(a->dout, out_at(s, n + t, h) + d);
			}
		}
	for (int64_t d = 0; d < s->size; d++) {
		put(a->dqkv, key_at(s, n + u, first) + d, (real)a->scale * dk[d]);
		put(a->dqkv, value_at(s, n + u, first) + d, dv[d]);
	}
}

void PLAIN(attention_backward)(struct device *dev, const struct op_attention_backward *a)
{
	struct heads s = heads_of(a->qkv, a->qkv, a->sequence);
	int64_t batch = a->qkv.shape[0] / s.length, heads = s.groups * s.per_group;

	for (int64_t b = 0; b < batch; b++)
		for (int64_t h = 0; h < heads; h++)
			for (int64_t t = 0; t < s.length; t++) {
				int64_t out = out_at(&s, b * s.length + t, h);
				put(a->delta, lse_at(&s, b, h, t), dot(a->dout, out, a->out, out, s.size));
			}
	for (int64_t b = 0; b < batch; b++) {
		for (int64_t h = 0; h < heads; h++)
			for (int64_t t = 0; t < s.length; t++)
				backward_query(dev, a, &s, b, h, t);
		for (int64_t group = 0; group < s.groups; group++)
			for (int64_t u = 0; u < s.length; u++)
				backward_key(dev, a, &s, b, group, u);
	}
}

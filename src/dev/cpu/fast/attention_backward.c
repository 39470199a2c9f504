#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/dropout.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/heads.h"

/* A part is one group of heads in one sequence, so that dk and dv, summed over the group's heads, have one thread. For
 * each head it goes over blocks of keys and, within, over the blocks of queries that see them; p is formed again from
 * the scores and lse. */
struct backward {
	struct device *dev;
	struct heads s;
	struct tensor dqkv;    /* whole */
	struct tensor dq, dkv; /* a part: added to */
	struct tensor dout, lse, delta;
	double scale;
	const struct dropout *dropout;
	int64_t first_head;
	const float *slopes; /* [H]; NULL: none */
};

/* A thread's room. */
struct state {
	float *dq, *dk, *dv;         /* [T][stride], in whole blocks: of a head; of the group */
	float *q, *dout;             /* [BLOCK][stride] */
	float *keys;                 /* [BLOCK][stride] */
	float *key_columns, *value_columns; /* [D][BLOCK] */
	float *kept, *ds;            /* [BLOCK queries][BLOCK keys] */
	struct drop drop;
};

/* p' and ds of a tile of queries against a block of keys. t: of the tile's first query, u: of the first key. */
static void differentiate(struct state *x, const struct backward *w, float *kept, float *ds, int64_t t, int64_t u,
			  int64_t valid, const float *lse, const float *delta, int64_t head, int64_t rows)
{
	for (int i = 0; i < TILE; i++, kept += BLOCK, ds += BLOCK) {
		const int64_t seen = least(valid, keys_seen(&w->s, t + i) - u);
		const bool real = i < rows; /* else a row that only fills the tile */
		if (x->drop.on)
			drop_fill(&x->drop, mask_at(&w->s, head, t + i, u), valid);
		for (int64_t c = 0; c < valid; c += LANES) {
			vi inside = (vi)vu_lanes() < (int32_t)(real ? seen - c : 0);
			vf score = vf_load(kept + c), dp = vf_load(ds + c);
			vf p = vf_select(inside, vf_exp(score - (real ? lse[i] : 0)), vf_set(0));
			vf factor = x->drop.on ? vf_load(x->drop.row + c) : vf_set(1);
			vf d = vf_select(inside, p * (dp * factor - (real ? delta[i] : 0)), vf_set(0));
			vf_store(kept + c, p * factor);
			vf_store(ds + c, d);
		}
		/* The products over queries read whole tiles of keys. */
		for (int64_t c = ceil_div(valid, LANES) * LANES; c < BLOCK; c += LANES) {
			vf_store(kept + c, vf_set(0));
			vf_store(ds + c, vf_set(0));
		}
	}
}

/* One block of queries, from first on, against one of keys, from u on. */
static void block_pair(const struct backward *w, struct state *x, int64_t b, int64_t h, int64_t first, int64_t u)
{
	const struct heads *s = &w->s;
	const int64_t n = b * s->length, heads = s->groups * s->per_group;
	const int64_t rows = least(BLOCK, s->length - first), keys = block_keys(s, u);
	const int64_t stat = (b * heads + h) * s->length + first;
	static const float ones[TILE] = {1, 1, 1, 1};

	FAST(block_load)(x->q, s, s->q, query_at(s, n + first, h), s->token, rows, BLOCK, (float)w->scale);
	FAST(block_load)(x->dout, s, w->dout, ((n + first) * heads + h) * s->size, heads * s->size, rows, BLOCK, 1);
	for (int64_t r = 0; r < rows; r += TILE) {
		const int64_t valid = least(keys, keys_seen(s, first + r + TILE - 1) - u);
		if (valid < 1)
			continue; /* what no query of the tile sees is not read below */
		float *kept = x->kept + r * BLOCK, *ds = x->ds + r * BLOCK;
		FAST(tile_product)(valid, s->size, x->q + r * s->stride, s->stride, 1, x->key_columns, BLOCK, kept, BLOCK, NULL);
		for (int i = 0; w->slopes && i < TILE; i++)
			lean(kept + i * BLOCK, s, w->slopes[h], first + r + i, u, valid);
		FAST(tile_product)(valid, s->size, x->dout + r * s->stride, s->stride, 1, x->value_columns, BLOCK, ds, BLOCK, NULL);
		differentiate(x, w, kept, ds, first + r, u, valid, (const float *)w->lse.data + stat + r,
			      (const float *)w->delta.data + stat + r, w->first_head + h, rows - r);
		FAST(tile_product)(s->stride, valid, ds, BLOCK, 1, x->keys, s->stride, x->dq + (first + r) * s->stride, s->stride,
			     ones);
	}
	for (int64_t k = 0; k < keys; k += TILE) {
		/* Queries before key u + k do not see it. */
		const int64_t unseen = first_seeing(s, u + k) - first, skip = unseen < 0 ? 0 : least(unseen, rows);
		FAST(tile_product)(s->stride, rows - skip, x->kept + skip * BLOCK + k, 1, BLOCK, x->dout + skip * s->stride, s->stride,
			     x->dv + (u + k) * s->stride, s->stride, ones);
		FAST(tile_product)(s->stride, rows - skip, x->ds + skip * BLOCK + k, 1, BLOCK, x->q + skip * s->stride, s->stride,
			     x->dk + (u + k) * s->stride, s->stride, ones);
	}
}

/* δ_t = dout_t·out_t of a head. */
INLINE void form_delta(enum dtype t, const struct op_attention_delta *a, int64_t b, int64_t h)
{
	const int64_t heads = a->dout.shape[1], size = a->dout.shape[2], length = a->delta.shape[2];
	for (int64_t r = 0; r < length; r++) {
		const int64_t at = ((b * length + r) * heads + h) * size;
		vf sum = vf_set(0);
		for (int64_t c = 0; c < size; c += LANES)
			sum = vf_fma(get_to(t, row_at(t, a->dout.data, at), c, size), get_to(t, row_at(t, a->out.data, at), c, size),
				     sum);
		((float *)a->delta.data)[(b * heads + h) * length + r] = vf_sum(sum);
	}
}

static void attention_delta_part(void *context, int64_t part, int thread)
{
	const struct op_attention_delta *a = context;
	BY_TYPE(a->out.dtype, form_delta, a, part / a->dout.shape[1], part % a->dout.shape[1]);
}

void FAST(attention_delta)(struct device *dev, const struct op_attention_delta *a)
{
	if (a->dout.dtype == F64) {
		ops_plain.attention_delta(dev, a);
		return;
	}
	struct op_attention_delta copy = *a;
	parallel(dev, a->delta.shape[0] * a->delta.shape[1], attention_delta_part, &copy);
}

/* `to` += rows of a block times factor, as block_store places them. */
static void block_add(struct tensor to, int64_t at, int64_t apart, const struct heads *s, const float *from, int64_t rows,
		      float factor)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < s->size; c += LANES) {
			float *sum = (float *)to.data + at + r * apart;
			put_to(F32, sum, c, vf_fma(vf_load(from + r * s->stride + c), vf_set(factor), get_to(F32, sum, c, s->size)),
			       s->size);
		}
}

static void attention_backward(const struct backward *w, struct state *x, int64_t b, int64_t group)
{
	const struct heads *s = &w->s;
	const int64_t heads = s->groups * s->per_group;
	const int64_t n = b * s->length;
	const size_t whole = (size_t)(ceil_div(s->length, BLOCK) * BLOCK * s->stride) * sizeof(float);

	memset(x->dk, 0, whole);
	memset(x->dv, 0, whole);
	for (int64_t h = group * s->per_group; h < (group + 1) * s->per_group; h++) {
		memset(x->dq, 0, whole);
		for (int64_t u = 0, keys; u < s->length; u += keys) {
			const int64_t seeing = first_seeing(s, u) / BLOCK * BLOCK;
			keys = block_keys(s, u);
			if (seeing >= s->length)
				break;
			FAST(block_load)(x->keys, s, s->kv, key_at(s, n + u, group), s->kv_token, keys, BLOCK, 1);
			FAST(block_transpose)(x->key_columns, s, s->kv, key_at(s, n + u, group), s->kv_token, keys);
			FAST(block_transpose)(x->value_columns, s, s->kv, value_at(s, n + u, group), s->kv_token, keys);
			for (int64_t first = seeing; first < s->length; first += BLOCK)
				block_pair(w, x, b, h, first, u);
		}
		if (s->keys)
			block_add(w->dq, (n * heads + h) * s->size, heads * s->size, s, x->dq, s->length, (float)w->scale);
		else
			FAST(block_store)(w->dqkv, query_at(s, n, h), s->token, s, x->dq, s->length, (float)w->scale);
	}
	/* The queries that went into dk had the scale on them. */
	if (s->keys) {
		block_add(w->dkv, key_at(s, n, group), s->kv_token, s, x->dk, s->length, 1);
		block_add(w->dkv, value_at(s, n, group), s->kv_token, s, x->dv, s->length, 1);
	} else {
		FAST(block_store)(w->dqkv, key_at(s, n, group), s->kv_token, s, x->dk, s->length, 1);
		FAST(block_store)(w->dqkv, value_at(s, n, group), s->kv_token, s, x->dv, s->length, 1);
	}
}

static void attention_backward_part(void *context, int64_t part, int thread)
{
	const struct backward *w = context;
	const struct heads *s = &w->s;
	const int64_t whole = ceil_div(s->length, BLOCK) * BLOCK * s->stride, block = BLOCK * s->stride;
	struct state x = {.dq = cpu_room_of(w->dev, thread)};
	x.dk = x.dq + whole;
	x.dv = x.dk + whole;
	x.q = x.dv + whole;
	x.dout = x.q + block;
	x.keys = x.dout + block;
	x.key_columns = x.keys + block;
	x.value_columns = x.key_columns + block;
	x.kept = x.value_columns + block;
	x.ds = x.kept + BLOCK * BLOCK;
	drop_init(&x.drop, w->dropout);
	x.drop.sample = (uint64_t)(w->dev->scalars->samples + w->dropout->span.sample + part / s->groups);
	attention_backward(w, &x, part / s->groups, part % s->groups);
}

size_t FAST(attention_backward_room)(const struct dev_limits *limits)
{
	int64_t stride = ceil_div(limits->head_size, LANES) * LANES, whole = ceil_div(limits->rows, BLOCK) * BLOCK;
	return (size_t)((3 * whole + 5 * BLOCK) * stride + 2 * BLOCK * BLOCK) * sizeof(float);
}

void FAST(attention_backward)(struct device *dev, const struct op_attention_backward *a)
{
	if (a->qkv.dtype == F64) {
		ops_plain.attention_backward(dev, a);
		return;
	}
	struct backward w = {.dev = dev, .s = heads_of(a->qkv, a->sequence), .dqkv = a->dqkv, .dout = a->dout, .lse = a->lse,
			     .delta = a->delta, .scale = a->scale, .dropout = &a->dropout, .first_head = a->first_head,
			     .slopes = a->slopes.data};
	FAST(attention_delta)(dev, &(struct op_attention_delta){.delta = a->delta, .dout = a->dout, .out = a->out});
	parallel(dev, a->qkv.shape[0] / a->sequence * w.s.groups, attention_backward_part, &w);
}

void FAST(attention_part_backward)(struct device *dev, const struct op_attention_part_backward *a)
{
	if (a->qkv.dtype == F64) {
		ops_plain.attention_part_backward(dev, a);
		return;
	}
	struct backward w = {.dev = dev, .s = heads_of_part(a->qkv, a->kv, &a->dropout.span, &a->keys), .dq = a->dq,
			     .dkv = a->dkv, .dout = a->dout, .lse = a->lse, .delta = a->delta, .scale = a->scale,
			     .dropout = &a->dropout, .first_head = a->first_head, .slopes = a->slopes.data};
	parallel(dev, a->qkv.shape[0] / a->keys.length * w.s.groups, attention_backward_part, &w);
}

#include <math.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/dropout.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/heads.h"

/* A part is QUERIES queries of one head. It walks over the blocks of keys once; each query keeps its largest score so
 * far and the sums relative to it, so that no scores are kept. */
enum { QUERIES = 256 };

struct forward {
	struct device *dev;
	struct heads s;
	struct tensor out, lse; /* of a part: sums, merged with what is there */
	bool fresh;             /* of a part: nothing is there */
	double scale;
	const struct dropout *dropout;
	int64_t first_head;
	const float *slopes; /* [H]; NULL: none */
};

/* A thread's room. */
struct state {
	float *q, *out;     /* [QUERIES][stride]: scaled queries; Σ p'·v so far */
	float *keys;        /* [D][BLOCK] */
	float *values;      /* [BLOCK][stride] */
	float most[QUERIES];
	vf total[QUERIES];  /* Σ p so far, by lanes */
	struct drop drop;
};

/* Scores of a tile of queries against a block of keys become p', sums move on. t: of the tile's first query; u: of the
 * block's first key; valid: keys that the last query of the tile sees. keep: what the old sums shrink by. */
static void softmax(struct state *x, const struct forward *w, float scores[TILE][BLOCK], int64_t at, int64_t t, int64_t u,
		    int64_t valid, int64_t head, float keep[TILE])
{
	for (int i = 0; i < TILE; i++) {
		const int64_t seen = least(valid, keys_seen(&w->s, t + i) - u);
		if (seen < 1) { /* this query sees none */
			keep[i] = 1;
			for (int64_t c = 0; c < valid; c += LANES)
				vf_store(scores[i] + c, vf_set(0));
			continue;
		}
		vf most = vf_set(x->most[at + i]), total = vf_set(0);
		for (int64_t c = 0; c < valid; c += LANES) {
			vi inside = (vi)vu_lanes() < (int32_t)(seen - c);
			vf score = vf_select(inside, vf_load(scores[i] + c), vf_set(-INFINITY));
			vf_store(scores[i] + c, score);
			most = vf_max(most, score);
		}
		const float top = vf_top(most);
		keep[i] = vf_exp(vf_set(x->most[at + i] - top))[0];
		if (x->drop.on)
			drop_fill(&x->drop, mask_at(&w->s, head, t + i, u), valid);
		for (int64_t c = 0; c < valid; c += LANES) {
			vi inside = (vi)vu_lanes() < (int32_t)(seen - c);
			vf p = vf_select(inside, vf_exp(vf_load(scores[i] + c) - top), vf_set(0));
			total += p;
			vf_store(scores[i] + c, x->drop.on ? p * vf_load(x->drop.row + c) : p);
		}
		x->total[at + i] = vf_fma(x->total[at + i], vf_set(keep[i]), total);
		x->most[at + i] = top;
	}
}

/* Row `row` of the sums: what is there and `sum` [stride] with its lse `here`, over other keys, become those over both. */
static void merge(const struct forward *w, float *lse, int64_t at, const float *sum, float total, float here)
{
	const int64_t size = w->s.size;
	const float before = w->fresh ? -INFINITY : *lse, top = before > here ? before : here;
	const float all = top + logf(expf(before - top) + expf(here - top));
	const vf old = vf_set(expf(before - all)), new = vf_set(expf(here - all) / total);
	float *to = (float *)w->out.data + at;
	for (int64_t c = 0; c < size; c += LANES) {
		vf x = vf_load(sum + c) * new;
		put_to(F32, to, c, w->fresh ? x : vf_fma(old, get_to(F32, to, c, size), x), size);
	}
	*lse = all;
}

static void leave(const struct forward *w, float *lse, int64_t at)
{
	if (!w->fresh)
		return;
	*lse = -INFINITY;
	memset((float *)w->out.data + at, 0, (size_t)w->s.size * sizeof(float));
}

static void attention(const struct forward *w, struct state *x, int64_t b, int64_t h, int64_t first)
{
	const struct heads *s = &w->s;
	const int64_t n = b * s->length, group = h / s->per_group, heads = s->groups * s->per_group;
	const int64_t rows = least(QUERIES, s->length - first), tiles = ceil_div(rows, TILE) * TILE;
	float scores[TILE][BLOCK] __attribute__((aligned(64)));
	float keep[TILE];

	FAST(block_load)(x->q, s, s->q, query_at(s, n + first, h), s->token, rows, tiles, (float)w->scale);
	memset(x->out, 0, (size_t)(tiles * s->stride) * sizeof(float));
	for (int64_t r = 0; r < tiles; r++) {
		x->most[r] = -INFINITY;
		x->total[r] = vf_set(0);
	}
	const int64_t last = keys_seen(s, first + rows - 1);
	for (int64_t u = 0, keys; u < last; u += keys) {
		keys = block_keys(s, u);
		FAST(block_transpose)(x->keys, s, s->kv, key_at(s, n + u, group), s->kv_token, keys);
		FAST(block_load)(x->values, s, s->kv, value_at(s, n + u, group), s->kv_token, keys, BLOCK, 1);
		const int64_t seeing = first_seeing(s, u) - first;
		for (int64_t r = seeing > 0 ? seeing / TILE * TILE : 0; r < rows; r += TILE) {
			const int64_t valid = least(keys, keys_seen(s, first + r + TILE - 1) - u);
			FAST(tile_product)(valid, s->size, x->q + r * s->stride, s->stride, 1, x->keys, BLOCK, scores[0], BLOCK, NULL);
			for (int i = 0; w->slopes && i < TILE; i++)
				lean(scores[i], s, w->slopes[h], first + r + i, u, valid);
			softmax(x, w, scores, r, first + r, u, valid, w->first_head + h, keep);
			FAST(tile_product)(s->stride, valid, scores[0], BLOCK, 1, x->values, s->stride, x->out + r * s->stride,
				     s->stride, keep);
		}
	}
	for (int64_t r = 0; r < rows; r++) {
		const float total = vf_sum(x->total[r]), here = x->most[r] + logf(total);
		float *lse = (float *)w->lse.data + (b * heads + h) * s->length + first + r;
		const int64_t at = ((n + first + r) * heads + h) * s->size;
		if (!s->keys) {
			*lse = here;
			FAST(block_store)(w->out, at, 0, s, x->out + r * s->stride, 1, 1.0f / total);
		} else if (keys_seen(s, first + r) > 0) {
			merge(w, lse, at, x->out + r * s->stride, total, here);
		} else {
			leave(w, lse, at);
		}
	}
}

static void attention_part(void *context, int64_t part, int thread)
{
	const struct forward *w = context;
	const struct heads *s = &w->s;
	const int64_t heads = s->groups * s->per_group, pieces = ceil_div(s->length, QUERIES);
	const int64_t batch = s->q.shape[0] / s->length;
	/* Later queries see more keys: the longest parts first. */
	const int64_t piece = pieces - 1 - part / (batch * heads), b = part / heads % batch, h = part % heads;
	struct state x = {.q = cpu_room_of(w->dev, thread)};
	x.out = x.q + QUERIES * s->stride;
	x.keys = x.out + QUERIES * s->stride;
	x.values = x.keys + s->size * BLOCK;
	drop_init(&x.drop, w->dropout);
	x.drop.sample = (uint64_t)(w->dev->scalars->samples + w->dropout->span.sample + b);
	attention(w, &x, b, h, piece * QUERIES);
}

size_t FAST(attention_room)(const struct dev_limits *limits)
{
	int64_t stride = ceil_div(limits->head_size, LANES) * LANES;
	return (size_t)((2 * QUERIES + 2 * BLOCK) * stride) * sizeof(float);
}

static void run(struct forward *w)
{
	const struct heads *s = &w->s;
	parallel(w->dev, s->q.shape[0] / s->length * s->groups * s->per_group * ceil_div(s->length, QUERIES), attention_part, w);
}

void FAST(attention_forward)(struct device *dev, const struct op_attention_forward *a)
{
	if (a->qkv.dtype == F64) {
		ops_plain.attention_forward(dev, a);
		return;
	}
	struct forward w = {dev, heads_of(a->qkv, a->sequence), a->out, a->lse, false, a->scale, &a->dropout, a->first_head,
			    a->slopes.data};
	run(&w);
}

void FAST(attention_part_forward)(struct device *dev, const struct op_attention_part_forward *a)
{
	if (a->qkv.dtype == F64) {
		ops_plain.attention_part_forward(dev, a);
		return;
	}
	struct forward w = {dev, heads_of_part(a->qkv, a->kv, &a->dropout.span, &a->keys), a->sum, a->lse, a->fresh, a->scale,
			    &a->dropout, a->first_head, a->slopes.data};
	run(&w);
}

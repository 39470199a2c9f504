#include <math.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/dropout.h"
#include "dev/cpu/fast/gelu.h"
#include "dev/cpu/fast/heads.h"

/* A part is QUERIES queries of one head. It walks over the blocks of keys once; each query keeps its largest score so
 * far and the sums relative to it, so that no scores are kept. */
enum { QUERIES = 256 };

struct forward {
	const struct op_attention_forward *op;
	struct device *dev;
	struct heads s;
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
		const int64_t seen = least(valid, t + i - u + 1); /* less than 1 where this query sees none */
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
			drop_fill(&x->drop, (uint64_t)((head * w->s.length + t + i) * w->s.length + u), valid);
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

static void attention(const struct forward *w, struct state *x, int64_t b, int64_t h, int64_t first)
{
	const struct op_attention_forward *a = w->op;
	const struct heads *s = &w->s;
	const int64_t n = b * s->length, group = h / s->per_group, heads = s->groups * s->per_group;
	const int64_t rows = least(QUERIES, s->length - first), tiles = ceil_div(rows, TILE) * TILE;
	float scores[TILE][BLOCK] __attribute__((aligned(64)));
	float keep[TILE];

	FAST(block_load)(x->q, s, a->qkv, query_at(s, n + first, h), s->token, rows, tiles, (float)a->scale);
	memset(x->out, 0, (size_t)(tiles * s->stride) * sizeof(float));
	for (int64_t r = 0; r < tiles; r++) {
		x->most[r] = -INFINITY;
		x->total[r] = vf_set(0);
	}
	for (int64_t u = 0; u < first + rows; u += BLOCK) {
		const int64_t keys = least(BLOCK, s->length - u);
		FAST(block_transpose)(x->keys, s, a->qkv, key_at(s, n + u, group), s->token, keys);
		FAST(block_load)(x->values, s, a->qkv, value_at(s, n + u, group), s->token, keys, BLOCK, 1);
		for (int64_t r = u > first ? (u - first) / TILE * TILE : 0; r < rows; r += TILE) {
			const int64_t valid = least(keys, first + r + TILE - u);
			FAST(tile_product)(valid, s->size, x->q + r * s->stride, s->stride, 1, x->keys, BLOCK, scores[0], BLOCK, NULL);
			softmax(x, w, scores, r, first + r, u, valid, a->first_head + h, keep);
			FAST(tile_product)(s->stride, valid, scores[0], BLOCK, 1, x->values, s->stride, x->out + r * s->stride,
				     s->stride, keep);
		}
	}
	for (int64_t r = 0; r < rows; r++) {
		const float total = vf_sum(x->total[r]);
		((float *)a->lse.data)[(b * heads + h) * s->length + first + r] = x->most[r] + logf(total);
		FAST(block_store)(a->out, ((n + first + r) * heads + h) * s->size, 0, s, x->out + r * s->stride, 1, 1.0f / total);
	}
}

static void attention_part(void *context, int64_t part, int thread)
{
	const struct forward *w = context;
	const struct heads *s = &w->s;
	const int64_t heads = s->groups * s->per_group, pieces = ceil_div(s->length, QUERIES);
	const int64_t batch = w->op->qkv.shape[0] / s->length;
	/* Later queries see more keys: the longest parts first. */
	const int64_t piece = pieces - 1 - part / (batch * heads), b = part / heads % batch, h = part % heads;
	struct state x = {.q = cpu_room_of(w->dev, thread)};
	x.out = x.q + QUERIES * s->stride;
	x.keys = x.out + QUERIES * s->stride;
	x.values = x.keys + s->size * BLOCK;
	drop_init(&x.drop, &w->op->dropout);
	x.drop.sample = (uint64_t)(w->dev->scalars->samples + w->op->dropout.span.sample + b);
	attention(w, &x, b, h, piece * QUERIES);
}

size_t FAST(attention_room)(const struct dev_limits *limits)
{
	int64_t stride = ceil_div(limits->head_size, LANES) * LANES;
	return (size_t)((2 * QUERIES + 2 * BLOCK) * stride) * sizeof(float);
}

void FAST(attention_forward)(struct device *dev, const struct op_attention_forward *a)
{
	if (a->qkv.dtype == F64) {
		ops_plain.attention_forward(dev, a);
		return;
	}
	struct forward w = {a, dev, heads_of(a->qkv, a->sequence)};
	parallel(dev, a->qkv.shape[0] / a->sequence * w.s.groups * w.s.per_group * ceil_div(a->sequence, QUERIES),
		 attention_part, &w);
}

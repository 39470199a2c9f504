/* heads.h: what attention forward and backward share: where heads lie, rows as floats, and products of small blocks.
 *
 * A block is BLOCK rows (queries or keys) of a head as floats, each row padded with zeros to `stride`, a multiple of
 * LANES. Products go by tiles of TILE rows that live in registers.
 *
 * Used by attention.c and attention_backward.c of fast/. */
#ifndef MTRAIN_DEV_CPU_FAST_HEADS_H
#define MTRAIN_DEV_CPU_FAST_HEADS_H

#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"
#include "dev/ops.h"

enum {
	BLOCK = 64,
	TILE = 4,
};

struct heads {
	int64_t length, groups, per_group, size; /* T, KV, G, D */
	int64_t stride;                          /* of a row in a block */
	struct tensor q, kv;                     /* queries; keys and values: of whole attention both are qkv */
	int64_t token;                           /* elements of a token in q */
	int64_t kv_token, kv_group, kv_key;      /* in kv: of a token, of a group, before a group's key */
	const struct span *queries, *keys;       /* NULL: whole sequences */
};

INLINE struct heads heads_of(struct tensor qkv, int64_t sequence)
{
	int64_t size = qkv.shape[3], group = qkv.shape[2] * size;
	return (struct heads){sequence, qkv.shape[1], qkv.shape[2] - 2, size, ceil_div(size, LANES) * LANES, qkv, qkv,
			      qkv.shape[1] * group, qkv.shape[1] * group, group, group - 2 * size, NULL, NULL};
}

INLINE struct heads heads_of_part(struct tensor qkv, struct tensor kv, const struct span *queries, const struct span *keys)
{
	struct heads s = heads_of(qkv, keys->length);
	s.kv = kv;
	s.kv_group = 2 * s.size;
	s.kv_token = s.groups * s.kv_group;
	s.kv_key = 0;
	s.queries = queries;
	s.keys = keys;
	return s;
}

/* How many keys query t sees: the first ones, more the later the query. */
INLINE int64_t keys_seen(const struct heads *s, int64_t t)
{
	return s->keys ? span_before(s->keys, span_place(s->queries, t) + 1) : t + 1;
}

/* The first query that sees key u. */
INLINE int64_t first_seeing(const struct heads *s, int64_t u)
{
	return s->keys ? span_before(s->queries, span_place(s->keys, u)) : u;
}

/* Keys of the block that begins at u: tokens without a gap. */
INLINE int64_t block_keys(const struct heads *s, int64_t u)
{
	bool gap = s->keys && s->keys->jump > 0 && u < s->length / 2;
	return least(BLOCK, (gap ? s->length / 2 : s->length) - u);
}

/* Dropout element of query t and key u. head: its global number. */
INLINE uint64_t mask_at(const struct heads *s, int64_t head, int64_t t, int64_t u)
{
	if (!s->keys)
		return (uint64_t)((head * s->length + t) * s->length + u);
	return (uint64_t)((head * s->keys->sequence + span_place(s->queries, t)) * s->keys->sequence + span_place(s->keys, u));
}

/* Linear biases onto the scores of query t against `valid` keys of one block, from u on: −slope·(token(t) − token(u + c)). */
INLINE void lean(float *scores, const struct heads *s, float slope, int64_t t, int64_t u, int64_t valid)
{
	const int64_t behind = s->keys ? span_place(s->queries, t) - span_place(s->keys, u) : t - u;
	for (int64_t c = 0; c < valid; c += LANES) {
		vf ahead = __builtin_convertvector((vi)vu_lanes() + (int32_t)(c - behind), vf);
		vf_store(scores + c, vf_fma(vf_set(slope), ahead, vf_load(scores + c)));
	}
}

/* Offset in q of head h's query at row n; in kv of its group's key and value. */
INLINE int64_t query_at(const struct heads *s, int64_t n, int64_t h)
{
	return n * s->token + (h / s->per_group * (s->per_group + 2) + h % s->per_group) * s->size;
}

INLINE int64_t key_at(const struct heads *s, int64_t n, int64_t group)
{
	return n * s->kv_token + group * s->kv_group + s->kv_key;
}

INLINE int64_t value_at(const struct heads *s, int64_t n, int64_t group)
{
	return key_at(s, n, group) + s->size;
}

/* `rows` rows of a head from element `at` of a tensor on, `apart` elements from one to the next, times factor; zero rows behind
 * them up to `all`. */
void FAST(block_load)(float *out, const struct heads *s, struct tensor from, int64_t at, int64_t apart, int64_t rows,
		      int64_t all, float factor);

/* The same rows as columns: out [D][BLOCK], zero columns behind them. */
void FAST(block_transpose)(float *out, const struct heads *s, struct tensor from, int64_t at, int64_t apart, int64_t rows);

/* The way back of block_load. */
void FAST(block_store)(struct tensor to, int64_t at, int64_t apart, const struct heads *s, const float *from, int64_t rows,
		       float factor);

/* out[i][c] = out[i][c]·keep[i] + Σ_k a[i·a_row + k·a_step]·b[k·b_step + c] for i < TILE and c < columns, up to a whole
 * vector; keep NULL: what was there does not count. */
void FAST(tile_product)(int64_t columns, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
			int64_t b_step, float *out, int64_t out_row, const float *keep);

#endif

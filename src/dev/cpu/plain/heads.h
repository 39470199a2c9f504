/* heads.h: where the rows of heads lie, for both ways of attention: whole (attention.c) and in parts (attention_part.c).
 *
 * A row is D elements; offsets are those of its first element. n: the token's row in the tensor; h: the head, whose key and
 * value are its group's. Used by those two files. */
#ifndef MTRAIN_DEV_CPU_PLAIN_HEADS_H
#define MTRAIN_DEV_CPU_PLAIN_HEADS_H

#include "dev/cpu/plain/plain.h"

struct heads {
	int64_t length, groups, per_group, size; /* T, KV, G, D */
	int64_t group, key; /* where keys are: rows of a group, and those before its key */
};

/* Keys and values lie in kv: qkv itself [N, KV, G + 2, D], or [N, KV, 2, D]. */
static inline struct heads heads_of(struct tensor qkv, struct tensor kv, int64_t length)
{
	return (struct heads){length, qkv.shape[1], qkv.shape[2] - 2, qkv.shape[3], kv.shape[2], kv.shape[2] - 2};
}

static inline int64_t query_at(const struct heads *s, int64_t n, int64_t h)
{
	return ((n * s->groups + h / s->per_group) * (s->per_group + 2) + h % s->per_group) * s->size;
}

static inline int64_t key_at(const struct heads *s, int64_t n, int64_t h)
{
	return ((n * s->groups + h / s->per_group) * s->group + s->key) * s->size;
}

static inline int64_t value_at(const struct heads *s, int64_t n, int64_t h)
{
	return key_at(s, n, h) + s->size;
}

/* In [N, H, D]. */
static inline int64_t out_at(const struct heads *s, int64_t n, int64_t h)
{
	return (n * s->groups * s->per_group + h) * s->size;
}

/* In [B, H, T]. */
static inline int64_t lse_at(const struct heads *s, int64_t b, int64_t h, int64_t t)
{
	return (b * s->groups * s->per_group + h) * s->length + t;
}

#endif

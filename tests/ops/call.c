#include "call.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"

enum { GUARD = 64, GUARD_BYTE = 0xa7, POISON_BYTE = 0xff };

static uint32_t stream_of(const char *name)
{
	uint32_t h = 2166136261u;
	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h;
}

int64_t call_draw(const char *name, int64_t i, int64_t below)
{
	struct philox w = philox(stream_of(name), (struct philox){{(uint32_t)i, (uint32_t)(i >> 32), 1, 2}});
	return (int64_t)(w.word[0] % (uint64_t)below);
}

static enum dtype type_of(enum kind kind, enum dtype call_type)
{
	static const enum dtype fixed[] = {[KIND_F64] = F64, [KIND_F32] = F32, [KIND_BF16] = BF16, [KIND_F16] = F16,
					   [KIND_I32] = I32};
	return kind == KIND_T ? call_type : kind == KIND_S ? dtype_sum(call_type) : fixed[kind];
}

struct arg *call_add(struct call *c, const char *name, struct tensor *at, enum role role, enum kind kind, int dims,
		     const int64_t *shape)
{
	assert_true(c->count < CALL_ARGS);
	struct arg *a = &c->args[c->count++];
	*at = tensor_of(NULL, type_of(kind, c->storage), dims, shape);
	*a = (struct arg){.name = name, .at = at, .role = role, .kind = kind, .count = tensor_count(*at)};
	a->result = calloc((size_t)a->count + 1, sizeof *a->result);
	if (role == OUT || role == ROOM)
		return a;
	a->values = calloc((size_t)a->count + 4, sizeof *a->values);
	for (int64_t i = 0; kind != KIND_I32 && i < a->count; i += 4) {
		double four[4];
		rng_normal(42, stream_of(name), (uint64_t)i / 4, four);
		for (int64_t k = i; k < i + 4 && k < a->count; k++)
			a->values[k] = four[k - i];
	}
	return a;
}

void call_share(struct call *c, const char *name, struct tensor *at, struct arg *same)
{
	assert_true(c->count < CALL_ARGS);
	same->role = INOUT;
	same->shared = true;
	*at = *same->at;
	c->args[c->count++] = (struct arg){.name = name, .at = at, .role = INOUT, .kind = same->kind, .same = same,
					   .count = same->count, .values = same->values, .result = same->result};
}

struct arg *call_find(struct call *c, const char *name)
{
	for (int i = 0; i < c->count; i++)
		if (strcmp(c->args[i].name, name) == 0)
			return &c->args[i];
	return NULL;
}

double round_to(enum dtype type, double value)
{
	switch (type) {
	case F32:
		return (double)(float)value;
	case BF16:
		return (double)float_from_bf16(bf16_from_float((float)value));
	case F16:
		return (double)float_from_fp16(fp16_from_float((float)value));
	default:
		return value;
	}
}

void call_round(struct call *c)
{
	for (int i = 0; i < c->count; i++)
		for (int64_t k = 0; c->args[i].values && k < c->args[i].count; k++)
			c->args[i].values[k] = round_to(type_of(c->args[i].kind, c->grid), c->args[i].values[k]);
}

void call_finish(struct call *c)
{
	for (int i = 0; i < c->count; i++)
		if (!c->args[i].same) {
			free(c->args[i].values);
			free(c->args[i].result);
		}
	free(c->image);
}

static void encode(unsigned char *to, enum dtype type, double value)
{
	float single = (float)value;
	int32_t whole = type == I32 ? (int32_t)value : 0;
	uint16_t half = type == F16 ? fp16_from_float(single) : bf16_from_float(single);
	const void *from = &half;
	if (type == F64)
		from = &value;
	else if (type == F32)
		from = &single;
	else if (type == I32)
		from = &whole;
	memcpy(to, from, dtype_size(type));
}

static double decode(const unsigned char *from, enum dtype type)
{
	double value;
	float single;
	int32_t whole;
	uint16_t half;
	switch (type) {
	case F64:
		return memcpy(&value, from, 8), value;
	case F32:
		return memcpy(&single, from, 4), (double)single;
	case I32:
		return memcpy(&whole, from, 4), (double)whole;
	default:
		memcpy(&half, from, 2);
		return (double)(type == F16 ? float_from_fp16(half) : float_from_bf16(half));
	}
}

void bench_open(struct bench *b, const struct backend *backend, const char *column, int threads)
{
	bool plain = column && strcmp(column, "plain") == 0;
	struct dev_options options = {.threads = threads, .plain = plain, .instructions = column};
	struct dev_limits limits = {.rows = 2048, .width = 50304, .head_size = HEAD_SIZE_MAX, .tensors = CALL_LIST};
	struct error e = {0};
	*b = (struct bench){0};
	if (!dev_open(&b->dev, backend, &options, &e) || !dev_reserve(b->dev, &limits, &e))
		fail_msg("%s", e.text);
}

void bench_close(struct bench *b)
{
	dev_give_back(b->dev, b->memory);
	dev_close(b->dev);
}

/* Offsets of the tensors in one block: guard, tensor, guard, tensor, … guard. Gives the bytes of the block. */
static size_t lay_out(const struct call *c, size_t *offsets, int skew)
{
	size_t at = 0;
	for (int i = 0; i < c->count; i++) {
		if (c->args[i].same) {
			offsets[i] = offsets[c->args[i].same - c->args];
			continue;
		}
		size_t element = dtype_size(c->args[i].at->dtype);
		at = (at + GUARD + 63) / 64 * 64 + (size_t)skew * element;
		offsets[i] = at;
		at += tensor_bytes(*c->args[i].at);
	}
	return (at + GUARD + 63) / 64 * 64;
}

static struct tensor bytes_at(unsigned char *p, size_t count)
{
	return tensor_1d(p, U8, (int64_t)count);
}

/* Puts the call on the device: what is to be before it, in `image` too. */
static void prepare(struct bench *b, struct call *c, const size_t *offsets, unsigned char *image, size_t bytes)
{
	if (b->room < bytes) {
		struct error e;
		dev_give_back(b->dev, b->memory);
		void *memory;
		if (!dev_take(b->dev, &memory, bytes, &e))
			fail_msg("%s", e.text);
		b->memory = memory;
		b->room = bytes;
	}
	memset(image, GUARD_BYTE, bytes);
	for (int i = 0; i < c->count; i++) {
		struct arg *a = &c->args[i];
		size_t element = dtype_size(a->at->dtype);
		a->at->data = b->memory + offsets[i];
		if (!a->values)
			memset(image + offsets[i], POISON_BYTE, tensor_bytes(*a->at));
		for (int64_t k = 0; a->values && !a->same && k < a->count; k++)
			encode(image + offsets[i] + (size_t)k * element, a->at->dtype, a->values[k]);
	}
	dev_write(b->dev, Q_COMPUTE, bytes_at(b->memory, bytes), image);
	dev_write_scalars(b->dev, Q_COMPUTE, &c->scalars);
	dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));
}

void call_run(struct bench *b, struct call *c, int skew)
{
	size_t offsets[CALL_ARGS], bytes = lay_out(c, offsets, skew);
	unsigned char *before = malloc(bytes);

	free(c->image);
	c->image = malloc(bytes);
	c->image_bytes = bytes;
	prepare(b, c, offsets, before, bytes);
	c->invoke(b->dev, c);
	dev_read(b->dev, Q_COMPUTE, c->image, bytes_at(b->memory, bytes));
	dev_read_scalars(b->dev, Q_COMPUTE, &c->scalars_after);
	dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));

	for (int i = 0; i < c->count; i++) {
		struct arg *a = &c->args[i];
		size_t size = tensor_bytes(*a->at), element = dtype_size(a->at->dtype);
		for (int64_t k = 0; k < a->count; k++)
			a->result[k] = decode(c->image + offsets[i] + (size_t)k * element, a->at->dtype);
		if (a->role == IN && memcmp(before + offsets[i], c->image + offsets[i], size) != 0)
			fail_msg("%s: %s is read only, but was changed", c->text, a->name);
		if (a->role != IN) /* what is left to compare are guards and inputs */
			memcpy(before + offsets[i], c->image + offsets[i], size);
		if (a->role == ROOM)
			memset(c->image + offsets[i], 0, size);
		if (a->role == ROOM)
			memset(before + offsets[i], 0, size);
	}
	if (!c->moves_scalars && memcmp(&c->scalars, &c->scalars_after, sizeof c->scalars) != 0)
		fail_msg("%s: changed the scalars", c->text);
	for (size_t at = 0; at < bytes; at++)
		if (before[at] != c->image[at])
			fail_msg("%s: wrote outside its tensors, at byte %zu of %zu", c->text, at, bytes);
	free(before);
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double call_time(struct bench *b, struct call *c, int times)
{
	size_t offsets[CALL_ARGS], bytes = lay_out(c, offsets, 0);
	unsigned char *before = malloc(bytes);
	prepare(b, c, offsets, before, bytes);
	free(before);
	double begin = seconds();
	for (int i = 0; i < times; i++)
		c->invoke(b->dev, c);
	dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));
	return (seconds() - begin) / times;
}

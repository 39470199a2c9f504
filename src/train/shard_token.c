#include "train/shard_token.h"

#include <endian.h>
#include <string.h>

#include "base/error.h"

static const struct {
	enum shard_token type;
	size_t size;
	const char *name;
} types[] = {
	{TOKEN_U8, 1, "u8"},   {TOKEN_I8, 1, "i8"},   {TOKEN_I16, 2, "i16"}, {TOKEN_I32, 4, "i32"},
	{TOKEN_I64, 8, "i64"}, {TOKEN_U16, 2, "u16"}, {TOKEN_U32, 4, "u32"},
};

size_t shard_token_size(enum shard_token type)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].type == type)
			return types[i].size;
	return 0;
}

const char *shard_token_name(enum shard_token type)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].type == type)
			return types[i].name;
	return "?";
}

static inline uint16_t load16(const void *raw, int64_t i)
{
	uint16_t v;
	memcpy(&v, (const char *)raw + 2 * i, sizeof v);
	return le16toh(v);
}

static inline uint32_t load32(const void *raw, int64_t i)
{
	uint32_t v;
	memcpy(&v, (const char *)raw + 4 * i, sizeof v);
	return le32toh(v);
}

static inline int64_t load64(const void *raw, int64_t i)
{
	uint64_t v;
	memcpy(&v, (const char *)raw + 8 * i, sizeof v);
	return (int64_t)le64toh(v);
}

/* One loop a type: `id` is the id number i, which `body` uses. The switch stands outside the loop, so each becomes a
 * plain vector loop. */
#define FOR_EACH_ID(body)                                                           \
	switch (type) {                                                             \
	case TOKEN_U8: EACH(((const uint8_t *)raw)[i], body) break;                 \
	case TOKEN_I8: EACH(((const int8_t *)raw)[i], body) break;                  \
	case TOKEN_I16: EACH((int16_t)load16(raw, i), body) break;                  \
	case TOKEN_I32: EACH((int32_t)load32(raw, i), body) break;                  \
	case TOKEN_I64: EACH(load64(raw, i), body) break;                           \
	case TOKEN_U16: EACH(load16(raw, i), body) break;                           \
	case TOKEN_U32: EACH(load32(raw, i), body) break;                           \
	}
#define EACH(load, body)                        \
	for (int64_t i = 0; i < count; i++) {   \
		int64_t id = load;              \
		body;                           \
	}

int64_t shard_token_at(enum shard_token type, const void *raw, int64_t i)
{
	int64_t least = INT64_MAX, most = INT64_MIN;
	shard_token_range(type, (const char *)raw + (size_t)i * shard_token_size(type), 1, &least, &most);
	return least;
}

int64_t shard_token_decode(enum shard_token type, const void *raw, int64_t count, int64_t vocab, int32_t *out)
{
	check(vocab > 0 && vocab <= INT32_MAX);
	uint64_t bad = 0, limit = (uint64_t)vocab;
	FOR_EACH_ID(out[i] = (int32_t)id; bad |= (uint64_t)id >= limit)
	if (!bad)
		return count;
	int64_t good = 0;
	while ((uint64_t)shard_token_at(type, raw, good) < limit)
		good++;
	return good;
}

void shard_token_range(enum shard_token type, const void *raw, int64_t count, int64_t *least, int64_t *most)
{
	int64_t low = *least, high = *most;
	FOR_EACH_ID(low = id < low ? id : low; high = id > high ? id : high)
	*least = low;
	*most = high;
}

void shard_token_find(enum shard_token type, const void *raw, int64_t count, int64_t wanted, int64_t *first,
		      int64_t *last)
{
	int64_t low = INT64_MAX, high = -1;
	FOR_EACH_ID(bool here = id == wanted; low = here && i < low ? i : low; high = here ? i : high)
	*first = high < 0 ? -1 : low;
	*last = high;
}

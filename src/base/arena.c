#include "base/arena.h"

#include "base/error.h"

void arena_measure(struct arena *a, const char *name)
{
	*a = (struct arena){.name = name};
}

void arena_init(struct arena *a, const char *name, void *base, size_t capacity)
{
	check(base != NULL || capacity == 0);
	*a = (struct arena){.name = name, .base = base, .capacity = capacity};
}

void *arena_take(struct arena *a, size_t bytes)
{
	size_t begin = a->used;
	a->used += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
	if (arena_measuring(a))
		return NULL;
	check(a->used <= a->capacity);
	return a->base + begin;
}

struct tensor arena_tensor(struct arena *a, enum dtype dtype, int dims, const int64_t *shape)
{
	struct tensor t = tensor_of(NULL, dtype, dims, shape);
	t.data = arena_take(a, tensor_bytes(t));
	return t;
}

struct tensor arena_1d(struct arena *a, enum dtype dtype, int64_t n)
{
	return arena_tensor(a, dtype, 1, &n);
}

struct tensor arena_2d(struct arena *a, enum dtype dtype, int64_t rows, int64_t columns)
{
	return arena_tensor(a, dtype, 2, (int64_t[]){rows, columns});
}

#include "dev/memory.h"

#include <stdio.h>

#include "base/text.h"

const char *memory_name(enum memory_kind kind)
{
	static const char *const names[MEMORY_KINDS] = {"weights", "gradients", "optimizer", "activations", "scratch",
							"communication", "tables"};
	return names[kind];
}

void memory_measure(struct memory *m)
{
	*m = (struct memory){0};
	for (int k = 0; k < MEMORY_KINDS; k++)
		arena_measure(&m->arena[k], memory_name((enum memory_kind)k));
}

char *memory_list(char buf[MEMORY_LIST], const struct memory *m)
{
	char bytes[32];
	int n = 0;
	buf[0] = '\0';
	for (int k = 0; k < MEMORY_KINDS; k++)
		if (m->arena[k].used > 0)
			n += snprintf(buf + n, (size_t)(MEMORY_LIST - n), "%s%s %s", n ? ", " : "",
				      memory_name((enum memory_kind)k), text_bytes(bytes, sizeof bytes, m->arena[k].used));
	return buf;
}

static bool too_much(const struct memory *m, struct device *dev, struct error *e)
{
	char list[MEMORY_LIST], bytes[32];
	return error_set(e, CODE_MACHINE, "%s has too little memory: the run needs %s (%s); more "
			 "tensor or pipeline ranks, parallel.recompute or a smaller batch.micro need less", dev_name(dev),
			 text_bytes(bytes, sizeof bytes, memory_bytes(m)), memory_list(list, m));
}

bool memory_open(struct memory *m, struct device *dev, struct error *e)
{
	struct memory got = {.dev = dev};
	for (int k = 0; k < MEMORY_KINDS; k++) {
		void *base;
		size_t need = m->arena[k].used;
		if (!dev_take(dev, &base, need, e)) {
			memory_close(&got);
			return too_much(m, dev, e);
		}
		arena_init(&got.arena[k], memory_name((enum memory_kind)k), base, need);
	}
	*m = got;
	return true;
}

void memory_close(struct memory *m)
{
	for (int k = 0; k < MEMORY_KINDS; k++)
		if (m->dev && m->arena[k].base)
			dev_give_back(m->dev, m->arena[k].base);
	*m = (struct memory){0};
}

size_t memory_bytes(const struct memory *m)
{
	size_t sum = 0;
	for (int k = 0; k < MEMORY_KINDS; k++)
		sum += m->dev ? m->arena[k].capacity : m->arena[k].used;
	return sum;
}

struct tensor memory_whole(const struct memory *m, enum memory_kind kind, enum dtype dtype)
{
	const struct arena *a = &m->arena[kind];
	return tensor_1d(a->base, dtype, (int64_t)(a->used / dtype_size(dtype)));
}

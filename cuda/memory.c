#include "card.h"

#include <stdlib.h>

enum { PAGE = 4096 };

/* What has been taken is kept in a list; a run takes a dozen pieces. */
static void *keep(struct allocation **list, void *given, size_t bytes)
{
	struct allocation *a = calloc(1, sizeof *a);
	check(a);
	a->given = given;
	a->used = (void *)(((uintptr_t)given + PAGE - 1) / PAGE * PAGE);
	a->bytes = bytes;
	a->next = *list;
	*list = a;
	return a->used;
}

/* What the runtime gave for it. */
static void *forget(struct allocation **at, const void *memory)
{
	while (*at && (*at)->used != memory)
		at = &(*at)->next;
	check(*at);
	struct allocation *a = *at;
	void *given = a->given;
	*at = a->next;
	free(a);
	return given;
}

void *card_take(struct device *dev, size_t bytes)
{
	void *given;
	if (cudaMalloc(&given, bytes + PAGE) != cudaSuccess) {
		cudaGetLastError(); /* said by the caller; the next call must not say it again */
		return NULL;
	}
	void *used = keep(&card_of(dev)->allocations, given, bytes);
	CALL(cudaMemset(used, 0, bytes));
	CALL(cudaStreamSynchronize(cudaStreamLegacy)); /* our streams do not wait for that one */
	return used;
}

void card_give_back(struct device *dev, void *memory)
{
	CALL(cudaFree(forget(&card_of(dev)->allocations, memory)));
}

void *card_take_host(struct device *dev, size_t bytes)
{
	void *given;
	if (cudaHostAlloc(&given, bytes + PAGE, cudaHostAllocDefault) != cudaSuccess) {
		cudaGetLastError();
		return NULL;
	}
	return keep(&card_of(dev)->pinned, given, bytes);
}

void card_give_back_host(struct device *dev, void *memory)
{
	CALL(cudaFreeHost(forget(&card_of(dev)->pinned, memory)));
}

bool card_pinned(const struct card *c, const void *memory)
{
	for (const struct allocation *a = c->pinned; a; a = a->next)
		if ((const char *)memory >= (char *)a->used && (const char *)memory < (char *)a->used + a->bytes)
			return true;
	return false;
}

void card_give_back_all(struct device *dev)
{
	struct card *c = card_of(dev);
	while (c->allocations)
		card_give_back(dev, c->allocations->used);
	while (c->pinned)
		card_give_back_host(dev, c->pinned->used);
}

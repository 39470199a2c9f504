#include "dev/cpu/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "dev/cpu/parallel.h"

enum { HUGE_PAGE = 2 << 20, PAGE = 4096 };

/* Bytes that the system can still hand out without swapping. Mapping more would succeed, and then the kernel would
 * kill some process in the middle of the run. */
static size_t available(void)
{
	size_t kib = SIZE_MAX >> 10;
	FILE *f = fopen("/proc/meminfo", "re");
	if (!f)
		return SIZE_MAX;
	char line[128];
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %zu", &kib) == 1)
			break;
	fclose(f);
	return kib << 10;
}

static void touch(void *context, int64_t part, int thread)
{
	const struct mapping *m = context;
	size_t begin = (size_t)part * HUGE_PAGE;
	for (size_t at = begin; at < begin + HUGE_PAGE && at < m->bytes; at += PAGE)
		((volatile char *)m->base)[at] = 0;
}

void *memory_take(struct device *dev, struct mapping **list, size_t bytes)
{
	size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
	if (bytes > SIZE_MAX - 2 * align || bytes > available())
		return NULL;
	bytes = (bytes + align - 1) & ~(align - 1);
	struct mapping *m = malloc(sizeof *m);
	if (!m)
		return NULL;
	char *raw = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw == MAP_FAILED) {
		free(m);
		return NULL;
	}
	/* Cut the ends off, so that what is left is aligned and exact. */
	size_t before = (align - (size_t)raw % align) % align;
	if (before)
		munmap(raw, before);
	if (before < align)
		munmap(raw + before + bytes, align - before);
	*m = (struct mapping){.next = *list, .base = raw + before, .bytes = bytes};
	if (align == HUGE_PAGE)
		madvise(m->base, bytes, MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
	*list = m;
	parallel(dev, (int64_t)((bytes + HUGE_PAGE - 1) / HUGE_PAGE), touch, m);
	return m->base;
}

void memory_give_back(struct mapping **list, void *memory)
{
	while (*list && (*list)->base != memory)
		list = &(*list)->next;
	struct mapping *m = *list;
	check(m != NULL);
	*list = m->next;
	munmap(m->base, m->bytes);
	free(m);
}

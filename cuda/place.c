#include "place.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"
#include "place_near.h"

static int order(const void *a, const void *b, void *context)
{
	const hwloc_const_bitmap_t *near = context;
	const int *x = a, *y = b;
	int first = hwloc_bitmap_first(near[*x]) - hwloc_bitmap_first(near[*y]);
	return first ? first : *x - *y;
}

int place_near(const hwloc_const_bitmap_t *near, int count, int local_rank, int local_size, int *part, int *parts)
{
	int cards[PLACE_CARDS];
	for (int i = 0; i < count; i++)
		cards[i] = i;
	qsort_r(cards, (size_t)count, sizeof *cards, order, (void *)(uintptr_t)near);
	int card = cards[local_rank % count];
	*part = *parts = 0;
	for (int r = 0; r < local_size; r++) {
		if (r == local_rank)
			*part = *parts;
		*parts += hwloc_bitmap_isequal(near[cards[r % count]], near[card]) != 0;
	}
	return card;
}

hwloc_bitmap_t place_cores(hwloc_topology_t machine, hwloc_const_bitmap_t near, hwloc_const_bitmap_t allowed, bool bound, int part,
			   int parts)
{
	hwloc_bitmap_t all = hwloc_bitmap_alloc(), mine = hwloc_bitmap_alloc();
	hwloc_bitmap_and(all, near, allowed);
	int cores = hwloc_get_nbobjs_inside_cpuset_by_type(machine, all, HWLOC_OBJ_CORE);
	if (bound || cores < parts) {
		hwloc_bitmap_copy(mine, all);
	} else {
		for (int i = part * cores / parts; i < (part + 1) * cores / parts; i++) {
			hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(machine, all, HWLOC_OBJ_CORE, (unsigned)i);
			check(core);
			hwloc_bitmap_or(mine, mine, core->cpuset);
		}
		hwloc_bitmap_and(mine, mine, all);
	}
	hwloc_bitmap_free(all);
	if (!hwloc_bitmap_iszero(mine))
		return mine;
	hwloc_bitmap_free(mine);
	return NULL;
}

/* The cores of the part of the machine that the card hangs on; all of them where nothing is known of it. */
static hwloc_const_bitmap_t cores_near(hwloc_topology_t machine, const char *bus)
{
	hwloc_obj_t card = hwloc_get_pcidev_by_busidstring(machine, bus);
	hwloc_obj_t part = card ? hwloc_get_non_io_ancestor_obj(machine, card) : NULL;
	bool known = part && part->cpuset && !hwloc_bitmap_iszero(part->cpuset);
	return known ? part->cpuset : hwloc_topology_get_topology_cpuset(machine);
}

/* Where cards hang is what the bus says; asking their own libraries takes time and may open them. */
static void ask_no_libraries(hwloc_topology_t machine)
{
	static const char *const names[] = {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
}

int place_take(const struct place *p)
{
	hwloc_const_bitmap_t near[PLACE_CARDS];
	hwloc_topology_t machine;
	int part, parts;
	if (hwloc_topology_init(&machine) != 0)
		return p->local_rank % p->count;
	ask_no_libraries(machine);
	hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if (hwloc_topology_load(machine) != 0) {
		hwloc_topology_destroy(machine);
		return p->local_rank % p->count;
	}
	for (int i = 0; i < p->count; i++)
		near[i] = cores_near(machine, p->bus[i]);
	int card = place_near(near, p->count, p->local_rank, p->local_size, &part, &parts);
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), mine = NULL;
	if (hwloc_get_cpubind(machine, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
		bool bound = !hwloc_bitmap_isequal(allowed, hwloc_topology_get_topology_cpuset(machine));
		mine = place_cores(machine, near[card], allowed, bound, part, parts);
	}
	if (mine)
		hwloc_set_cpubind(machine, mine, HWLOC_CPUBIND_PROCESS);
	hwloc_bitmap_free(mine);
	hwloc_bitmap_free(allowed);
	hwloc_topology_destroy(machine);
	return card;
}

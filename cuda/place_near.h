/* place_near.h: the rule of place.h over sets of cores, apart from any machine. Used by place.c and its test. */
#ifndef MTRAIN_CUDA_PLACE_NEAR_H
#define MTRAIN_CUDA_PLACE_NEAR_H

#include <hwloc.h>

#include "place.h"

/* near [count]: the cores each card hangs on; not empty. Gives the card of a rank; *part of *parts is which part of its cores
 * the rank has. */
int place_near(const hwloc_const_bitmap_t *near, int count, int local_rank, int local_size, int *part, int *parts);

/* The set of cores to run on, or NULL: leave it as it is. allowed: where the process may run now; bound: the launcher has
 * said so. To be freed with hwloc_bitmap_free. */
hwloc_bitmap_t place_cores(hwloc_topology_t machine, hwloc_const_bitmap_t near, hwloc_const_bitmap_t allowed, bool bound, int part,
			   int parts);

#endif

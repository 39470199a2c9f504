/* place.h: which card of the machine a rank takes, and which of its cores.
 *
 * Cards are ordered by the cores they hang on, as launchers order ranks; rank i of the machine takes the i-th, and runs on
 * the cores near it, its part of them where several ranks share those. A binding by the launcher is narrowed, never left.
 *
 * Used by device.c. Without hwloc (place_plain.c) cards go by their numbers and nothing is bound. */
#ifndef MTRAIN_CUDA_PLACE_H
#define MTRAIN_CUDA_PLACE_H

enum { PLACE_CARDS = 64, PLACE_BUS = 16 };

struct place {
	int count;                         /* cards that this process sees */
	char bus[PLACE_CARDS][PLACE_BUS];  /* "0000:3b:00.0" */
	int local_rank, local_size;
};

/* The card's number; binds the process near it. */
int place_take(const struct place *p);

#endif

/* mpi_cut.h: how an all-reduce over MPI is cut: into rounds, and each round into a slice a rank.
 *
 * A rank receives its slice from all others at once, into a lane's scratch, whose bytes bound a round. Numbers alone, so that
 * they can be checked for more ranks than a machine has. Used by mpi_work.c. */
#ifndef MTRAIN_COMM_MPI_CUT_H
#define MTRAIN_COMM_MPI_CUT_H

#include <stddef.h>
#include <stdint.h>

/* Elements of `size` bytes that a slice has at most. */
static inline int64_t mpi_cut_room(int64_t scratch, int ranks, size_t size)
{
	int64_t room = scratch / (int64_t)size / (ranks - 1);
	return room >= 64 ? room / 64 * 64 : room;
}

/* Elements of each slice, but for the last ones, of a round of at most ranks·room. */
static inline int64_t mpi_cut_slice(int64_t round, int ranks, int64_t room)
{
	int64_t slice = ((round + ranks - 1) / ranks + 15) / 16 * 16;
	return slice < room ? slice : room;
}

#endif

/* groups.h: the mesh's axes as comms.
 *
 * All comms of a run are made here, eagerly, in one agreed order, and live as long as the run.
 *
 * Owns the comms but for the world. Used by model (tensor, context) and train (the others). */
#ifndef MTRAIN_PAR_GROUPS_H
#define MTRAIN_PAR_GROUPS_H

#include "comm/comm.h"
#include "par/mesh.h"

struct groups {
	struct comm *world;
	struct comm *tensor; /* ranks that split each layer; rank in it = t */
	struct comm *context; /* ranks that split each sequence; rank in it = c */
	struct comm *data;   /* ranks with the same weights; rank in it = c + C·d */
	struct comm *pipe;   /* the stages, in order; rank in it = p */
	struct comm *ends;   /* first and last stage, for the tied embedding; NULL elsewhere and with one stage */
};

/* Collective over the world. Fails: CODE_MACHINE. */
bool groups_open(struct groups *g, struct comm *world, const struct mesh *mesh, struct error *e);
void groups_close(struct groups *g);

/* Rank and size of this rank of a struct mesh in the group of that name, from the mesh alone: for groups that are counted
 * and not started (comm/count.h). */
void groups_place(const void *mesh, const char *name, int *rank, int *size);

/* How far apart in the world neighbours of that group are. */
int groups_stride(const struct mesh *mesh, const char *name);

#endif

/* checkpoint.h: the state of a run to disk and back, on any mesh.
 *
 * Saving: every rank writes the boxes it owns into its own file, rank 0 writes the manifest last; see
 * checkpoint_folder.h for when a folder counts. Loading: the manifest says where the boxes of each tensor lie, and
 * each rank reads what its own boxes have in common with them, so the mesh may be another one. Tensors pass through
 * buffers of CHECKPOINT_CHUNK bytes; no rank ever holds more of them.
 *
 * All functions are collective over `world`, and all ranks get the same answer and the same error.
 *
 * Used by the commands. A struct checkpoint owns the buffer. */
#ifndef MTRAIN_TRAIN_CHECKPOINT_H
#define MTRAIN_TRAIN_CHECKPOINT_H

#include "base/file.h"
#include "comm/comm.h"
#include "dev/device.h"
#include "train/checkpoint_folder.h"
#include "train/manifest.h"
#include "train/state.h"

struct checkpoint_options {
	const char *dir;    /* run.dir/checkpoints; made where needed */
	int64_t keep_last;  /* the newest so many stay; 0: all */
	int64_t keep_every; /* multiples of it stay for ever; 0: none */
};

struct checkpoint;

/* What a run that saves holds. Removes what killed saves left in the folder, and has a file size limit answered as a
 * full disk is, not by a signal. Fails: CODE_MACHINE: no folder, no memory. */
bool checkpoint_open(struct checkpoint **out, const struct checkpoint_options *options, struct comm *world,
		     struct device *dev, struct error *e);
void checkpoint_close(struct checkpoint *c); /* NULL is fine; not collective */

/* Writes run.counters.step's folder: the state as of everything queued so far on any queue of the device; returns
 * when it is on disk. Then removes the checkpoints that the options no longer keep. `run` counts on rank 0 alone.
 * Fails: CODE_MACHINE with the cause: no room, an unwritable file, a tensor of which no rank owns some part. Nothing
 * is left of it and the older checkpoints are as they were; the caller warns and goes on. */
bool checkpoint_save(struct checkpoint *c, const struct state *state, const struct manifest_run *run, struct error *e);

/* A checkpoint that has been checked whole: its manifest, and every file against its size and checksum. */
struct checkpoint_found {
	char path[PATH_ROOM]; /* "": there is none */
	struct manifest manifest;
};

/* The newest valid checkpoint in dir (run.dir/checkpoints). One that does not check is passed over with a warning
 * that says what is wrong with it. None, or no dir: true, with an empty path.
 * Fails: CODE_CHECKPOINT: the dir cannot be read, or there are checkpoints and none is valid, since going on as if
 * there were none would throw a run away. */
bool checkpoint_find(struct checkpoint_found *found, const char *dir, struct comm *world, struct error *e);

/* The checkpoint that a user named: a checkpoint's folder, or a run's, which means the newest valid one in it.
 * Fails: CODE_CHECKPOINT: it is not there or does not check. */
bool checkpoint_find_at(struct checkpoint_found *found, const char *path, struct comm *world, struct error *e);

void checkpoint_found_finish(struct checkpoint_found *found); /* a zeroed one is fine */

/* Fills the local tensors of the state, and what lies behind their boxes with zeros; device work queued later on any
 * queue comes after it. The state's tensors and the checkpoint's must be the same, by name, type and shape, taken over
 * all ranks: none missing on either side. An `optional` entry that the checkpoint does not have becomes zero.
 * weights_only: only entries "weight/…" count on both sides, all others become zero.
 * Fails: CODE_CHECKPOINT with the list of what is missing, differs or would be left over; CODE_CHECKPOINT also when a
 * file does not hold what the manifest says. */
bool checkpoint_load(const struct checkpoint_found *found, struct comm *world, struct device *dev,
		     const struct state *state, bool weights_only, struct error *e);

#endif

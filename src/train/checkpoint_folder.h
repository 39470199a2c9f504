/* checkpoint_folder.h: the folders of checkpoints, as one process sees them.
 *
 * A run keeps its checkpoints in run.dir/checkpoints. One is written in a hidden folder beside its place,
 * `.tmp-step-00001000`, and becomes `step-00001000` by a rename when all of it is on disk: what has no such name is
 * no checkpoint, and a crash leaves the old ones as they were. What must go is renamed to a hidden name first, for
 * the same reason.
 *
 * Nothing here talks to other ranks: checkpoint.h spreads the work, import writes alone. */
#ifndef MTRAIN_TRAIN_CHECKPOINT_FOLDER_H
#define MTRAIN_TRAIN_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "train/manifest.h"

/* Bytes of one buffer between device and file: all that a save or a load holds of the tensors at a time. */
enum { CHECKPOINT_CHUNK = 4 << 20 };

enum { STEP_NAME_ROOM = 40 };
void checkpoint_step_name(char out[STEP_NAME_ROOM], int64_t step);  /* "step-00001000" */

/* "rank-00003.safetensors" */
void checkpoint_file_name(char out[STEP_NAME_ROOM], int rank);

/* Steps of the folders in dir that are named as checkpoints, newest first, from malloc; a dir that is not there has
 * none. Whether they are valid is not looked at. Fails: CODE_CHECKPOINT, the dir cannot be read. */
bool checkpoint_list(const char *dir, int64_t **steps, int *count, struct error *e);

/* Makes dir where needed and in it an empty hidden folder for the step, whose path goes to `temp`.
 * Fails: CODE_MACHINE, also when the file system has fewer than `bytes` free. */
bool checkpoint_begin(const char *dir, int64_t step, int64_t bytes, char temp[PATH_ROOM], struct error *e);

/* Writes the sealed manifest and its checksum into temp, syncs, renames to the step's name, syncs dir. A folder that
 * is there already gives way. Fails: CODE_MACHINE; temp is still there. */
bool checkpoint_commit(const char *dir, int64_t step, const char *temp, const struct manifest *m, struct error *e);

/* Removes what a failed or killed save left; problems are warnings. */
void checkpoint_abandon(const char *temp);
void checkpoint_clean(const char *dir); /* every .tmp-step-* in dir */

/* Removes old checkpoints after `newest` was saved. Of those up to newest the last keep_last stay (0: all; newest
 * always) and the multiples of keep_every (0: none); later ones, left from before a return to an older one, are not
 * touched. Problems are warnings. */
void checkpoint_prune(const char *dir, int64_t newest, int64_t keep_last, int64_t keep_every);

/* Reads and checks manifest.json of a checkpoint folder against its checksum, and that every file it lists has its
 * size. The text goes to *text (from malloc, *bytes long) where that is not NULL.
 * Fails: CODE_CHECKPOINT with the file and what is wrong with it. */
bool checkpoint_read(const char *path, struct manifest *m, char **text, size_t *bytes, struct error *e);

/* Hashes one file of the folder. buffer: CHECKPOINT_CHUNK bytes. Fails: CODE_CHECKPOINT. */
bool checkpoint_verify(const char *path, const struct manifest_file *file, void *buffer, struct error *e);

#endif

/* import_gpt2.h: published GPT-2 weights (GPT2LMHeadModel) → the checkpoint of step 0.
 *
 * GPT-2 keeps its matrices as [in, out] and query, key and value side by side in one; here rows are outputs and each
 * head has its own query, key and value. data/parameters.md lists both. Weights become FP32, Adam's moments are zero.
 * One process, one file; a matrix that must be turned is in memory once, all others pass through a buffer.
 *
 * Used by the command `import`. */
#ifndef MTRAIN_TRAIN_IMPORT_GPT2_H
#define MTRAIN_TRAIN_IMPORT_GPT2_H

#include "model/settings.h"
#include "train/manifest.h"

/* Fills from config.json in the folder everything that the weights fix; dropout, attention_dropout and init_std are a
 * run's own choice and stay as they are. Fails: CODE_CHECKPOINT: no config.json, another architecture, a value that is
 * missing or out of range, or something in it that mtrain's GPT does not do, by name. */
bool import_gpt2_settings(const char *input, struct model_settings *m, struct error *e);

/* Writes dir/step-00000000 (dir: run.dir/checkpoints), replacing the one that is there.
 * Fails: CODE_CHECKPOINT: a tensor is missing, left over, of another shape, or of no float type; CODE_MACHINE. */
bool import_gpt2(const char *input, const struct model_settings *m, const char *dir, const struct manifest_run *run,
		 struct error *e);

#endif

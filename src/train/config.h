/* config.h: all settings of a run, from an INI file, --set, a checkpoint and the defaults.
 *
 * The order of a start: config_load reads file and --set over the defaults; where a checkpoint is loaded,
 * config_take_model gives it the last word on [model]; config_require says what is still missing; config_check holds
 * the settings against each other. Each may be left out by a command that has no use for it. After the mesh is known
 * the caller writes its data size into parallel.data and checks once more.
 *
 * A struct config owns the texts its settings point to, and is not to be copied. Used by commands and train. */
#ifndef MTRAIN_TRAIN_CONFIG_H
#define MTRAIN_TRAIN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "comm/comm.h"
#include "model/settings.h"
#include "par/mesh.h"
#include "train/setting.h"
#include "train/settings.h"

enum config_source { CONFIG_UNSET, CONFIG_DEFAULT, CONFIG_FILE, CONFIG_OPTION, CONFIG_CHECKPOINT, CONFIG_FOUND };

/* Where a setting's value is from. */
struct config_origin {
	enum config_source source;
	int line;   /* CONFIG_FILE: in the INI file */
	char *text; /* as it was written; NULL where the value is the literal default */
};

struct config {
	struct run_settings run;
	struct model_settings model;
	struct parallel_settings parallel;
	struct batch_settings batch;
	struct precision_settings precision;
	struct optimizer_settings optimizer;
	struct data_settings data;
	struct eval_settings eval;
	struct checkpoint_settings checkpoint;
	struct log_settings log;
	struct device_settings device;
	struct launch_settings launch;

	char *path;                                /* the INI file's, for messages */
	struct config_origin origin[SETTING_MAX];  /* beside setting_table */
};

/* Reads the file, then each "section.key=value" of `sets` (a later one wins over an earlier one and over the file),
 * then fills in the defaults. Fails: CODE_USAGE with file:line or the --set, for a file that cannot be read, a line
 * that is no setting, an unknown section or key, a key twice in the file, a value out of range; *c is then empty. */
bool config_load(struct config *c, const char *path, const char *const *sets, int set_count, struct error *e);

/* The same from text in memory; `path` is for messages and for NAME. */
bool config_parse(struct config *c, const char *path, const char *text, size_t bytes, const char *const *sets,
		  int set_count, struct error *e);

void config_finish(struct config *c); /* a zeroed one is fine */

/* Whether "section.key" was written by the user, in the file or by --set. Needs: there is such a setting. */
bool config_given(const struct config *c, const char *name);

/* Where its value is from, for messages: "gpt.ini:12", "--set", "the checkpoint". Returns buf. */
char *config_where(const struct config *c, const char *name, char *buf, size_t room);

/* Sets one that nobody gave as the program finds it out ("model.vocab" from the data). Fails: `code`, when the value is
 * out of its range. */
bool config_set(struct config *c, const char *name, const char *value, int code, struct error *e);

/* Gives every setting that is unset, or was by default, its default: config_load and config_take_model end so. */
void config_fill(struct config *c);

/* Takes each [model] setting that the user has not given from a checkpoint's settings; defaults that follow from it
 * move along. `whence` names the checkpoint. Fails: CODE_USAGE when one that was given is another, CODE_CHECKPOINT when
 * the checkpoint's is unknown here or out of its range. */
bool config_take_model(struct config *c, const struct config_pair *pairs, int count, const char *whence,
		       struct error *e);

/* Calls f for each setting outside [model] that is another than in a checkpoint's settings, in table order. */
void config_compare(const struct config *c, const struct config_pair *pairs, int count,
		    void (*f)(void *context, const struct setting *s, const char *now, const char *then),
		    void *context);

/* Every required setting of the sections (a list that ends with NULL) has a value. Fails: CODE_USAGE naming all that
 * have none. */
bool config_require(const struct config *c, const char *const *sections, struct error *e);

/* Settings that each are good but do not go together; what is still unset is passed over. Fails: CODE_USAGE with what
 * would be right. */
bool config_check(const struct config *c, struct error *e);

/* Every rank has the same settings, but for [device] and [launch]. Collective. Fails: CODE_USAGE, on every rank alike, with the first
 * one that differs. */
bool config_alike(const struct config *c, struct comm *world, struct error *e);

/* Calls f with a sentence for each setting that was given, is not its default, and has no effect beside the others. */
void config_unused(const struct config *c, void (*f)(void *context, const char *text), void *context);

/* All settings that have a value, by name in table order, with values as an INI file takes them. The caller gives them to
 * config_free_pairs. */
struct config_pair *config_pairs(const struct config *c, int *count);
void config_free_pairs(struct config_pair *pairs, int count);

/* Writes all settings that have a value, as they are now, to an INI file that config_load reads back. Fails: CODE_MACHINE. */
bool config_write(const struct config *c, const char *path, struct error *e);

#endif

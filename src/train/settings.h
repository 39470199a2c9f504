/* settings.h: what a run does, a small struct for each section of the settings.
 *
 * A part of training includes this and takes only its own section; [model] and [parallel] are declared where they are
 * used (model/settings.h, par/mesh.h). What each field means, its default and its range are said once, in the table
 * (setting_table.c); `mtrain help settings` prints it. struct config (config.h) holds all sections and owns the texts
 * that these structs point to. */
#ifndef MTRAIN_TRAIN_SETTINGS_H
#define MTRAIN_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "dev/scalars.h"

/* A setting by name and as text: what a checkpoint's manifest keeps. */
struct config_pair {
	const char *key; /* "section.key" */
	const char *value;
};

struct run_settings {
	const char *dir;
	int64_t seed;
	int64_t steps;
	double max_minutes; /* 0: no limit */
};

struct batch_settings {
	int64_t global; /* sequences a step */
	int64_t micro;  /* sequences a micro-batch */
};

struct precision_settings {
	enum dtype compute;         /* F16, BF16 or F32 */
	double loss_scale;          /* 0: dynamic */
	double loss_scale_initial;
	int64_t loss_scale_window;
	double loss_scale_min;
	int64_t overflow_limit;
};

struct optimizer_settings {
	double lr, min_lr;
	enum lr_schedule schedule;
	int64_t warmup_steps, decay_steps; /* in updates */
	double beta1, beta2, epsilon;
	double weight_decay;
	double clip; /* 0: off */
};

struct data_settings {
	const char *train, *valid, *split, *format, *tokenizer, *end_of_document;
	bool mask_end_of_document;
};

struct eval_settings {
	int64_t every; /* steps; 0: never */
	int64_t batches;
};

enum load_only { LOAD_ALL, LOAD_WEIGHTS };

struct checkpoint_settings {
	int64_t every;      /* steps; 0: only at the end and on a stop */
	int64_t keep_last;
	int64_t keep_every; /* 0: none is kept for ever */
	const char *load;   /* "auto", "none" or a path */
	enum load_only load_only;
};

struct log_settings {
	int64_t every; /* steps */
	bool jsonl;
};

struct device_settings {
	const char *backend; /* "auto" or the name of one */
	int64_t threads;     /* 0: auto */
	int64_t memory;      /* bytes that a rank may take; 0: auto */
	bool graphs;         /* the work of a step is launched as CUDA graphs */
	bool tune;           /* algorithms of matrix products and attention are timed at start */
};

struct launch_settings {
	double init_timeout, step_timeout; /* seconds; 0: no limit */
	const char *nccl_algorithm, *nccl_protocol; /* "auto": NCCL's own choice */
};

#endif

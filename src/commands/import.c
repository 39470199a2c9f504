#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "commands/commands.h"
#include "commands/options.h"
#include "model/param.h"
#include "train/checkpoint_folder.h"
#include "train/config.h"
#include "train/import_gpt2.h"

/* What the weights fix of [model]; the rest is the run's own choice. */
static const char *const fixed[] = {
	"layers", "hidden", "heads",        "kv_heads",   "head_size", "ffn",      "sequence",
	"vocab",  "norm",   "norm_epsilon", "activation", "bias",      "qkv_bias", "tied",
	"position", "normalized_head",
};
enum { FIXED = sizeof fixed / sizeof fixed[0] };

/* config.json's settings become those of the run; where the INI gives others, that is an error. */
static bool take_settings(struct config *c, const char *input, struct error *e)
{
	struct config theirs = {0};
	char keys[FIXED][48], values[FIXED][SETTING_ROOM], whence[PATH_ROOM];
	struct config_pair pairs[FIXED];
	if (!import_gpt2_settings(input, &theirs.model, e))
		return false;
	for (int i = 0; i < FIXED; i++) {
		char buf[SETTING_ROOM];
		snprintf(keys[i], sizeof keys[i], "model.%s", fixed[i]);
		snprintf(values[i], sizeof values[i], "%s",
			 setting_print(setting_find("model", fixed[i]), &theirs, buf));
		pairs[i] = (struct config_pair){keys[i], values[i]};
	}
	snprintf(whence, sizeof whence, "%.4000s/config.json", input);
	return config_take_model(c, pairs, FIXED, whence, e) &&
	       config_require(c, (const char *const[]){"model", NULL}, e);
}

/* The settings that go into the manifest: of [model] only what the weights fix, so that a run may choose the rest. */
static struct config_pair *kept_pairs(const struct config *c, struct config_pair **all, int *all_count, int *kept_count)
{
	struct config_pair *pairs = *all = config_pairs(c, all_count);
	struct config_pair *kept = calloc((size_t)*all_count + 1, sizeof *kept);
	*kept_count = 0;
	for (int i = 0; kept && i < *all_count; i++) {
		bool keep = strncmp(pairs[i].key, "model.", 6) != 0;
		for (int k = 0; k < FIXED && !keep; k++)
			keep = strcmp(pairs[i].key + 6, fixed[k]) == 0;
		if (keep)
			kept[(*kept_count)++] = pairs[i];
	}
	return kept;
}

/* A run that has gone on would not start from what is imported. */
static bool check_fresh(const char *dir, struct error *e)
{
	int64_t *steps;
	int count;
	if (!checkpoint_list(dir, &steps, &count, e))
		return false;
	int64_t newest = count > 0 ? steps[0] : 0;
	free(steps);
	if (newest == 0)
		return true;
	return error_set(e, CODE_USAGE,
			 "import: %s already holds step %lld, from which a run would go on; give another run.dir", dir,
			 (long long)newest);
}

static bool import(struct config *c, const char *input, struct error *e)
{
	char dir[PATH_ROOM];
	if (!file_join(dir, c->run.dir, "checkpoints"))
		return error_set(e, CODE_USAGE, "run.dir = %.100s…: path too long", c->run.dir);
	if (!check_fresh(dir, e) || !take_settings(c, input, e))
		return false;
	struct manifest_run run = {0};
	bool dynamic = c->precision.loss_scale == 0;
	run.counters.loss_scale = dynamic ? c->precision.loss_scale_initial : c->precision.loss_scale;
	struct config_pair *all;
	int all_count;
	struct config_pair *kept = kept_pairs(c, &all, &all_count, &run.setting_count);
	run.settings = kept;
	bool good = kept ? import_gpt2(input, &c->model, dir, &run, e) : error_set(e, CODE_MACHINE, "out of memory");
	config_free_pairs(all, all_count);
	free(kept);
	if (!good)
		return false;
	struct param_table params;
	char count[32];
	param_table_init(&params, &c->model, F32, 1, 0);
	log_info("%s/step-00000000: %s parameters from %s", dir,
		 text_si(count, sizeof count, (double)param_total(&params)), input);
	param_table_finish(&params);
	return true;
}

struct values {
	const char *format, *input, *config;
	struct option_list sets;
};

static const struct option_row rows[] = {
	{"format", "hf", OPTION_TEXT, offsetof(struct values, format), true, NULL,
	 "what the input is: config.json and safetensors as Hugging Face has them"},
	{"input", "DIR", OPTION_TEXT, offsetof(struct values, input), true, NULL,
	 "the folder with config.json and model.safetensors"},
	{"config", "FILE", OPTION_TEXT, offsetof(struct values, config), true, NULL,
	 "the INI file of the run that is to go on from the weights"},
	{"set", "section.key=value", OPTION_LIST, offsetof(struct values, sets), false, NULL,
	 "a setting in place of the file's"},
};

static const struct options options = {
	.usage = "mtrain import --format hf --input DIR --config FILE [--set section.key=value]...",
	.summary = "Writes published GPT-2 weights as run.dir/checkpoints/step-00000000, from which training goes on. "
		   "What\n"
		   "the INI file leaves out of [model] comes from config.json.",
	.rows = rows,
	.count = sizeof rows / sizeof rows[0],
};

int command_import(int argc, char **argv, struct error *e)
{
	struct values v = {0};
	struct config c;
	bool helped;
	if (!options_read(&options, &v, argc, argv, NULL, NULL, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	if (strcmp(v.format, "hf") != 0) {
		error_set(e, CODE_USAGE, "import: --format %.100s: what can be read is hf", v.format);
		return e->code;
	}
	if (!config_load(&c, v.config, v.sets.texts, v.sets.count, e))
		return e->code;
	bool good = import(&c, v.input, e);
	config_finish(&c);
	return good ? CODE_DONE : e->code;
}

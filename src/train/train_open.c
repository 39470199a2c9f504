#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/recompute.h"
#include "train/ledger.h"
#include "train/rehearse.h"
#include "train/train.h"

static bool agreed(struct comm *world, struct error *e, bool good)
{
	if (good)
		*e = (struct error){0};
	return comm_agree(world, e);
}

static bool have_checkpoint(const struct train *t)
{
	return t->found.path[0] != '\0';
}

/* A warm start (load = PATH, load_only = weights) is how a run begins: once it has checkpoints of its own, it resumes
 * from those, or a requeued job would begin again and again. */
static bool find_checkpoint(struct train *t, struct error *e)
{
	const struct checkpoint_settings *s = &t->config->checkpoint;
	bool automatic = strcmp(s->load, "auto") == 0, warm = s->load_only == LOAD_WEIGHTS;
	char dir[PATH_ROOM];

	if (strcmp(s->load, "none") == 0)
		return true;
	if (!file_join(dir, t->config->run.dir, "checkpoints"))
		return error_set(e, CODE_USAGE, "run.dir is too long");
	if (automatic || warm) {
		if (!checkpoint_find(&t->found, dir, t->world, e))
			return false;
		if (automatic || have_checkpoint(t)) {
			t->weights_only = automatic && warm;
			return true;
		}
	}
	t->weights_only = warm;
	return checkpoint_find_at(&t->found, s->load, t->world, e);
}

/* [model] keys that the user left out come from the checkpoint. */
static bool take_model(struct train *t, struct error *e)
{
	const struct manifest_run *m = &t->found.manifest.run;
	if (!have_checkpoint(t))
		return true;
	return config_take_model(t->config, m->settings, m->setting_count, t->found.path, e);
}

/* Opens the data; the vocabulary's size may come from it. */
static bool open_data(struct train *t, struct error *e)
{
	struct config *c = t->config;
	char vocab[32];

	if (!data_open(&t->data, &c->data, (uint64_t)c->run.seed, c->model.sequence, c->model.vocab, e))
		return false;
	if (!*c->data.tokenizer && *t->data.tokenizer &&
	    !config_set(c, "data.tokenizer", t->data.tokenizer, CODE_DATA, e))
		return false;
	if (c->model.vocab > 0)
		return true;
	snprintf(vocab, sizeof vocab, "%lld", (long long)t->data.vocab);
	return config_set(c, "model.vocab", vocab, CODE_DATA, e);
}

static bool fit_mesh(struct train *t, struct mesh *mesh, const char *program, struct error *e)
{
	struct config *c = t->config;
	if (!config_require(c, (const char *const[]){"run", "model", "batch", "optimizer", "data", NULL}, e) ||
	    !config_check(c, e) ||
	    !mesh_init(mesh, &c->parallel, comm_rank(t->world), comm_size(t->world), program, c->path, e))
		return false;
	c->parallel.data = mesh->size[AXIS_DATA];
	return config_check(c, e);
}

static void say_difference(void *context, const struct setting *s, const char *now, const char *then)
{
	(void)context;
	log_info("  %s.%s = %s (was %s)", s->section, s->key, now, then);
}

/* The data's order goes on where it was, or the user is told that it does not. */
static void check_order(struct train *t)
{
	const struct manifest_run *m = &t->found.manifest.run;
	int64_t *taken = calloc((size_t)m->source_count + 1, sizeof *taken);
	struct error e;

	check(taken);
	for (int i = 0; i < m->source_count; i++)
		taken[i] = m->sources[i].samples;
	if (!data_check_taken(&t->data, m->counters.samples, taken, m->source_count, &e) && log_rank() == 0)
		log_warn("break of order: %s", e.text);
	free(taken);
}

static bool load(struct train *t, struct error *e)
{
	const struct manifest_run *m = &t->found.manifest.run;
	bool weights_only = t->weights_only;
	struct scalars s = run_scalars(t->config);

	if (!checkpoint_load(&t->found, t->world, t->dev, &t->run.state, weights_only, e))
		return false;
	optim_masters_changed(&t->run.optim);
	if (!weights_only) {
		double scale = s.loss_scale;
		manifest_restore(&s, &m->counters);
		if (!t->run.rules.dynamic_scale)
			s.loss_scale = scale; /* a number in the settings wins over one that was dynamic */
		t->saved_step = s.step;
		check_order(t);
	}
	dev_write_scalars(t->dev, Q_COMPUTE, &s);
	dev_finish(t->dev, dev_mark(t->dev, Q_COMPUTE));
	t->scalars = s;
	log_info("loaded %s%s: step %lld", t->found.path, weights_only ? " (weights only)" : "", (long long)s.step);
	config_compare(t->config, m->settings, m->setting_count, say_difference, NULL);
	return true;
}

static void say_unused(void *context, const char *text)
{
	(void)context;
	if (log_rank() == 0)
		log_warn("%s", text);
}

static bool open_files(struct train *t, struct error *e)
{
	struct config *c = t->config;
	char path[PATH_ROOM];
	bool good = true;

	if (comm_rank(t->world) == 0)
		good = file_make_folder(c->run.dir, CODE_MACHINE, e) &&
		       (file_join(path, c->run.dir, "config.ini") || error_set(e, CODE_USAGE, "run.dir is too long")) &&
		       config_write(c, path, e) && metrics_open(&t->metrics, c->run.dir, c->log.jsonl, t->scalars.step, e);
	if (!agreed(t->world, e, good))
		return false;
	if (!file_join(path, c->run.dir, "checkpoints"))
		return error_set(e, CODE_USAGE, "run.dir is too long");
	return checkpoint_open(&t->saver, &(struct checkpoint_options){
		.dir = path, .keep_last = c->checkpoint.keep_last, .keep_every = c->checkpoint.keep_every,
	}, t->world, t->dev, e);
}

static void tell_start(struct train *t)
{
	const struct config *c = t->config;
	const struct run *r = &t->run;
	struct block_row rows[BLOCK_TENSORS];
	char recomputed[RECOMPUTE_ROOM];

	block_rows(rows, gpt_block(&r->gpt));
	console_summary(&(struct console_summary){
		.config = c, .mesh = &r->mesh, .stage_layers = r->stage_layers, .parameters = param_total(&r->params),
		.memory = &r->memory, .workspace = dev_workspace(t->dev), .device = dev_name(t->dev),
		.recomputed = recompute_text(recomputed, r->kept, r->gpt.positions, rows),
	});
	t->console = console_open(t->scalars.step, c->run.steps, c->log.every);
	metrics_start(t->metrics, comm_size(t->world), dev_name(t->dev));
	if (have_checkpoint(t))
		metrics_resume(t->metrics, t->scalars.step, t->found.path);
}

/* What a step takes, of every rank. */
static void write_ledger(struct train *t)
{
	int ranks = comm_size(t->world);
	struct ledger *mine = calloc(1, sizeof *mine), *all = calloc((size_t)ranks, sizeof *all);
	check(mine && all);
	ledger_of_run(mine, &t->run);
	comm_host_gather(t->world, all, mine, sizeof *mine);
	if (t->metrics) {
		cJSON *list = ledger_json_all(all, ranks);
		char *text = cJSON_PrintUnformatted(list);
		check(text);
		metrics_ledger(t->metrics, t->scalars.step, text);
		free(text);
		cJSON_Delete(list);
	}
	free(mine);
	free(all);
}

bool train_open(struct train *t, struct config *config, struct device *dev, struct comm *world, double begin,
		const char *program, struct error *e)
{
	struct mesh mesh;

	*t = (struct train){.config = config, .dev = dev, .world = world, .begin = begin, .saved_step = -1};
	t->scalars = run_scalars(config);
	if (!config_alike(config, world, e) || !find_checkpoint(t, e) || !agreed(world, e, take_model(t, e)) ||
	    !agreed(world, e, fit_mesh(t, &mesh, program, e)) || !agreed(world, e, open_data(t, e)) ||
	    !agreed(world, e, config_check(config, e)))
		return false;
	log_phase("load");
	t->scalars = run_scalars(config);
	config_unused(config, say_unused, NULL);
	if (!run_open(&t->run, config, &mesh, dev, world, e))
		return false;
	if (have_checkpoint(t)) {
		if (!load(t, e))
			return false;
	} else {
		run_initialise(&t->run);
	}
	run_compare_ends(&t->run);
	rehearse(&t->run, world, &t->found.manifest.run, &t->tuning);
	if (!open_files(t, e))
		return false;
	if (comm_rank(world) == 0)
		tell_start(t);
	write_ledger(t);
	log_phase(NULL);
	return true;
}

void train_close(struct train *t)
{
	console_close(t->console);
	metrics_close(t->metrics);
	checkpoint_close(t->saver);
	run_close(&t->run);
	tuning_finish(&t->tuning);
	checkpoint_found_finish(&t->found);
	data_close(&t->data);
	*t = (struct train){0};
}

#include "train/frozen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/batch.h"

static void build(struct frozen *f, struct device *dev)
{
	const struct model_settings *m = &f->config.model;
	param_table_init(&f->params, m, F32, 1, 0);
	f->params.frozen = true;
	gpt_build(&f->gpt, &(struct gpt_options){
		.model = m, .params = &f->params, .dev = dev, .tensor_size = 1, .stages = 1, .chunks = 1,
		.layers_of = &m->layers, .batch = 1, .slots = 1, .inputs = 1,
	}, &f->memory);
}

static void take_apart(struct frozen *f)
{
	gpt_finish(&f->gpt);
	param_table_finish(&f->params);
}

static bool load_weights(struct frozen *f, const struct checkpoint_found *found, struct comm *world, struct error *e)
{
	struct state state;
	state_init(&state);
	for (int i = 0; i < f->params.count; i++) {
		const struct param *p = &f->params.params[i];
		struct state_entry entry = {.dtype = F32, .dims = p->dims, .box = p->box, .local = p->weight};
		memcpy(entry.shape, p->shape, sizeof entry.shape);
		snprintf(entry.name, sizeof entry.name, "weight/%s", p->name);
		state_add(&state, &entry);
	}
	bool good = checkpoint_load(found, world, f->dev, &state, true, e);
	state_finish(&state);
	return good;
}

static bool take_settings(struct frozen *f, const struct checkpoint_found *found, struct error *e)
{
	const struct manifest_run *m = &found->manifest.run;
	if (!config_parse(&f->config, found->path, "", 0, NULL, 0, e) ||
	    !config_take_model(&f->config, m->settings, m->setting_count, found->path, e))
		return false;
	const char *tokenizer = manifest_setting(&found->manifest, "data.tokenizer");
	if (tokenizer && *tokenizer && !config_set(&f->config, "data.tokenizer", tokenizer, CODE_CHECKPOINT, e))
		return false;
	return config_require(&f->config, (const char *const[]){"model", NULL}, e) && config_check(&f->config, e);
}

bool frozen_open(struct frozen *f, const char *path, struct comm *world, struct device *dev, struct error *e)
{
	struct checkpoint_found found = {0};

	*f = (struct frozen){.dev = dev};
	bool good = checkpoint_find_at(&found, path, world, e) && take_settings(f, &found, e);
	if (good) {
		memory_measure(&f->memory);
		build(f, NULL);
		struct dev_limits limits = gpt_limits(&f->gpt);
		take_apart(f);
		good = dev_reserve(dev, &limits, e) && memory_open(&f->memory, dev, e);
	}
	if (good) {
		build(f, dev);
		f->room = calloc(4 * (size_t)f->config.model.sequence, sizeof *f->room);
		check(f->room);
		good = load_weights(f, &found, world, e);
	}
	checkpoint_found_finish(&found);
	if (!good)
		frozen_close(f);
	return good;
}

void frozen_close(struct frozen *f)
{
	free(f->room);
	if (f->params.params)
		take_apart(f);
	if (f->memory.dev)
		memory_close(&f->memory);
	config_finish(&f->config);
	*f = (struct frozen){0};
}

void frozen_logits(struct frozen *f, const int32_t *tokens, int64_t count, float *logits)
{
	struct gpt_slot *s = &f->gpt.slots[0];
	int64_t T = f->config.model.sequence;
	int32_t *inputs = f->room, *order = inputs + T, *targets = order + T;

	check(count >= 1 && count <= T);
	for (int64_t i = 0; i < T; i++) { /* what follows the last token is not seen by it */
		inputs[i] = i < count ? tokens[i] : 0;
		targets[i] = -1;
	}
	batch_sort(order, inputs, T, targets + T);
	s->pass = (struct pass){.training = false};
	dev_write(f->dev, Q_COMPUTE, s->tokens, inputs);
	dev_write(f->dev, Q_COMPUTE, s->order, order);
	dev_write(f->dev, Q_COMPUTE, s->targets, targets);
	gpt_logits(&f->gpt, 0, count - 1, logits);
}

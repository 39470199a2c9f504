#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dev/scalars.h"
#include "model/rope.h"
#include "train/config.h"
#include "train/schedule.h"

__attribute__((format(printf, 3, 4)))
static bool wrong(const struct config *c, struct error *e, const char *format, ...)
{
	char cause[700];
	va_list args;
	va_start(args, format);
	vsnprintf(cause, sizeof cause, format, args);
	va_end(args);
	return error_set(e, CODE_USAGE, "%s: %s", c->path, cause);
}

/* The divisors of n, as "1, 2, 3 or 6"; the first few where there are many. */
static const char *divisors(char *buf, size_t room, int64_t n)
{
	int64_t found[8];
	int count = 0;
	size_t at = 0;
	for (int64_t i = 1; i <= n && i <= 4096 && count < 8; i++)
		if (n % i == 0)
			found[count++] = i;
	for (int i = 0; i < count && at < room; i++)
		at += (size_t)snprintf(buf + at, room - at, "%s%lld", i == 0 ? "" : i == count - 1 ? " or " : ", ",
				       (long long)found[i]);
	return buf;
}

/* n must be a multiple of step; both are named. */
static bool multiple(const struct config *c, const char *name, int64_t n, const char *step_name, int64_t step,
		     struct error *e)
{
	if (n == 0 || step == 0 || n % step == 0)
		return true;
	long long below = (long long)(n / step * step);
	if (below == 0)
		return wrong(c, e, "%s = %lld is not divisible by %s = %lld: %lld would be", name, (long long)n,
			     step_name, (long long)step, (long long)step);
	return wrong(c, e, "%s = %lld is not divisible by %s = %lld: %lld or %lld would be", name, (long long)n,
		     step_name, (long long)step, below, below + (long long)step);
}

/* Each of the layer's sizes is cut evenly over the tensor ranks. */
static bool cut(const struct config *c, const char *name, int64_t n, struct error *e)
{
	char buf[160];
	int64_t tensor = c->parallel.tensor;
	if (n == 0 || n % tensor == 0)
		return true;
	return wrong(c, e, "%s = %lld cannot be split evenly over parallel.tensor = %lld ranks: a tensor size of %s "
		     "can", name, (long long)n, (long long)tensor, divisors(buf, sizeof buf, n));
}

static bool check_model(const struct config *c, struct error *e)
{
	const struct model_settings *m = &c->model;
	if (m->head_size == 0 && m->hidden > 0 && m->heads > 0)
		return multiple(c, "model.hidden", m->hidden, "model.heads", m->heads, e);
	char reason[ROPE_REASON];
	if (m->head_size > HEAD_SIZE_MAX)
		return wrong(c, e, "model.head_size = %lld is above the %d that attention can do: more model.heads, or a smaller "
			     "model.head_size, would be right", (long long)m->head_size, HEAD_SIZE_MAX);
	if (m->position == POSITION_ROPE && m->head_size > 0 && !rope_right(m, reason))
		return wrong(c, e, "%s", reason);
	return multiple(c, "model.heads", m->heads, "model.kv_heads", m->kv_heads, e) &&
	       cut(c, "model.heads", m->heads, e) && cut(c, "model.kv_heads", m->kv_heads, e) &&
	       cut(c, "model.ffn", m->ffn, e);
}

static bool check_stages(const struct config *c, struct error *e)
{
	const struct parallel_settings *p = &c->parallel;
	int64_t layers_of[65536 + 2]; /* no model has more layers, and two stages may have none */
	struct error cause = {0};
	if (p->chunks > 1 && p->pipeline == 1)
		return wrong(c, e, "parallel.chunks = %lld with parallel.pipeline = 1: chunks take turns over the ranks of a "
			     "pipeline, and here is one: parallel.chunks = 1 would be right", (long long)p->chunks);
	if (p->chunks > 1 && p->schedule != PIPELINE_INTERLEAVED)
		return wrong(c, e, "parallel.chunks = %lld needs parallel.schedule = interleaved: the other schedules have one "
			     "chunk a rank", (long long)p->chunks);
	if (c->model.layers == 0)
		return true;
	if (p->pipeline > c->model.layers / p->chunks || strcmp(p->stages, "auto") != 0)
		if (!mesh_stages(layers_of, (int)p->pipeline, (int)p->chunks, c->model.layers, 0, p->stages, &cause))
			return wrong(c, e, "%s", cause.text);
	return true;
}

/* Each context rank has a chunk from either end of a sequence. */
static bool check_context(const struct config *c, struct error *e)
{
	return c->parallel.context == 1 ||
	       multiple(c, "model.sequence", c->model.sequence, "2*parallel.context", 2 * c->parallel.context, e);
}

static bool check_batch(const struct config *c, struct error *e)
{
	const struct batch_settings *b = &c->batch;
	if (b->global == 0 || b->micro == 0)
		return true;
	int64_t tokens = b->micro * (c->model.sequence / c->parallel.context);
	if (tokens > INT32_MAX) /* rows are numbered in 32 bits, and sizes in bytes have room in 64 */
		return wrong(c, e, "batch.micro = %lld samples of %lld tokens%s make %lld rows, more than %d: a smaller batch.micro or more "
			     "context ranks would do", (long long)b->micro, (long long)(c->model.sequence / c->parallel.context),
			     c->parallel.context > 1 ? " on a context rank" : "", (long long)tokens, INT32_MAX);
	if (c->parallel.sequence == SEQUENCE_ON && tokens % c->parallel.tensor != 0)
		return wrong(c, e, "parallel.sequence = true, but the %lld tokens of a micro-batch%s cannot be split evenly over "
			     "parallel.tensor = %lld ranks: false or auto would do", (long long)tokens,
			     c->parallel.context > 1 ? " on a context rank" : "", (long long)c->parallel.tensor);
	if (c->parallel.data == 0)
		return multiple(c, "batch.global", b->global, "batch.micro", b->micro, e);
	char name[64];
	snprintf(name, sizeof name, "batch.micro (%lld) times the data ranks (%lld)", (long long)b->micro,
		 (long long)c->parallel.data);
	if (!multiple(c, "batch.global", b->global, name, b->micro * c->parallel.data, e))
		return false;
	int64_t micros = b->global / (b->micro * c->parallel.data);
	int64_t most = SCHEDULE_MOST / (c->parallel.pipeline * c->parallel.chunks);
	most = most < SCHEDULE_MICROS ? most : SCHEDULE_MICROS;
	if (micros > most)
		return wrong(c, e, "batch.global = %lld makes %lld micro-batches of each data rank's part of a step: with parallel.pipeline = "
			     "%lld and chunks = %lld at most %lld can be; a larger batch.micro or more data ranks would do", (long long)b->global,
			     (long long)micros, (long long)c->parallel.pipeline, (long long)c->parallel.chunks, (long long)most);
	if ((double)b->global * (double)c->model.sequence * (double)c->run.steps >= 0x1p63)
		return wrong(c, e, "run.steps*batch.global*model.sequence are more tokens than can be counted");
	return true;
}

static bool check_optimizer(const struct config *c, struct error *e)
{
	const struct optimizer_settings *o = &c->optimizer;
	if (o->lr > 0 && o->min_lr > o->lr)
		return wrong(c, e, "optimizer.min_lr = %g is above optimizer.lr = %g", o->min_lr, o->lr);
	if (o->decay_steps > 0 && o->warmup_steps > o->decay_steps && o->schedule != LR_CONSTANT)
		return wrong(c, e, "optimizer.warmup_steps = %lld is above optimizer.decay_steps = %lld, where the "
			     "learning rate is at its lowest", (long long)o->warmup_steps, (long long)o->decay_steps);
	return true;
}

static bool check_precision(const struct config *c, struct error *e)
{
	const struct precision_settings *p = &c->precision;
	if (p->loss_scale == 0 && p->loss_scale_initial < p->loss_scale_min)
		return wrong(c, e, "precision.loss_scale_initial = %g is below precision.loss_scale_min = %g",
			     p->loss_scale_initial, p->loss_scale_min);
	return true;
}

static bool check_run(const struct config *c, struct error *e)
{
	const struct checkpoint_settings *k = &c->checkpoint;
	bool valid = c->data.valid && *c->data.valid, split = c->data.split && *c->data.split;
	if (valid && split)
		return wrong(c, e, "data.valid and data.split both name data to validate on: name one");
	if (c->eval.every > 0 && !valid && !split)
		return wrong(c, e, "eval.every = %lld, but there is nothing to validate on: name data.valid or "
			     "data.split", (long long)c->eval.every);
	if (k->keep_every > 0 && (k->every == 0 || k->keep_every % k->every != 0))
		return wrong(c, e, "checkpoint.keep_every = %lld is no multiple of checkpoint.every = %lld: no such "
			     "checkpoint would be written", (long long)k->keep_every, (long long)k->every);
	if (!*k->load)
		return wrong(c, e, "checkpoint.load is empty: must be auto, none or a checkpoint's path");
	if (k->load_only == LOAD_WEIGHTS && strcmp(k->load, "none") == 0)
		return wrong(c, e, "checkpoint.load_only = weights with checkpoint.load = none: name the checkpoint");
	if (!*c->run.dir)
		return wrong(c, e, "run.dir is empty: must name a folder");
	return true;
}

static bool check_memory(const struct config *c, struct error *e)
{
	if (c->parallel.recompute == RECOMPUTE_AUTO && c->device.memory == 0)
		return wrong(c, e, "parallel.recompute = auto fits a rank into device.memory, which is auto: give it a number, as in "
			     "70Gi");
	return true;
}

bool config_check(const struct config *c, struct error *e)
{
	return check_model(c, e) && check_stages(c, e) && check_context(c, e) && check_batch(c, e) && check_optimizer(c, e) &&
	       check_precision(c, e) && check_memory(c, e) && check_run(c, e);
}

/* Settings that only count beside another one. */
static const char *without_effect(const struct config *c, const char *name)
{
	if (c->precision.loss_scale != 0 && (strcmp(name, "precision.loss_scale_initial") == 0 ||
					     strcmp(name, "precision.loss_scale_window") == 0 ||
					     strcmp(name, "precision.loss_scale_min") == 0))
		return "precision.loss_scale is fixed";
	if (c->optimizer.schedule == LR_CONSTANT &&
	    (strcmp(name, "optimizer.min_lr") == 0 || strcmp(name, "optimizer.decay_steps") == 0))
		return "optimizer.schedule = constant";
	if (c->model.position != POSITION_ROPE && (strcmp(name, "model.rope_base") == 0 || strcmp(name, "model.rope_scaling") == 0 ||
						   strcmp(name, "model.rotary_fraction") == 0))
		return "model.position is not rope";
	if (c->parallel.pipeline == 1 && strcmp(name, "parallel.schedule") == 0)
		return "parallel.pipeline = 1";
	if (c->parallel.data == 1 && c->parallel.context == 1 && strcmp(name, "parallel.shard_optimizer") == 0)
		return "parallel.data = 1";
	if (c->eval.every == 0 && strcmp(name, "eval.batches") == 0)
		return "eval.every = 0";
	if (c->eval.every == 0 && strcmp(name, "data.valid") == 0)
		return "eval.every = 0";
	return NULL;
}

void config_unused(const struct config *c, void (*f)(void *context, const char *text), void *context)
{
	struct config plain = {.path = c->path};
	for (int i = 0; i < setting_count; i++) {
		const struct setting *s = &setting_table[i];
		char name[64], now[SETTING_ROOM], text[256];
		char reason[SETTING_REASON], initial[SETTING_ROOM];
		snprintf(name, sizeof name, "%s.%s", s->section, s->key);
		const char *why = without_effect(c, name);
		if (!why || !config_given(c, name))
			continue;
		const char *value = setting_print(s, c, now);
		if (s->initial && setting_read(s, &plain, s->initial, reason) &&
		    strcmp(setting_print(s, &plain, initial), value) == 0)
			continue;
		snprintf(text, sizeof text, "%s = %.100s has no effect, since %s", name, value, why);
		f(context, text);
	}
}

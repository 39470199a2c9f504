#include "train/train.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/control.h"

static bool read_train(void *context, int64_t sample, int32_t *inputs, int32_t *targets, struct error *e)
{
	return data_read(context, sample, inputs, targets, e);
}

/* Windows past the end are masked, so that the last micro-batch need not be whole. */
static bool read_valid(void *context, int64_t window, int32_t *inputs, int32_t *targets, struct error *e)
{
	struct data *d = context;
	if (window < d->valid_windows)
		return data_read_valid(d, window, inputs, targets, e);
	for (int64_t i = 0; i < d->sequence; i++) {
		inputs[i] = 0;
		targets[i] = -1;
	}
	return true;
}

static void step(struct train *t)
{
	struct run *r = &t->run;
	const struct feed feed = {read_train, &t->data};

	run_step(r, &feed, t->scalars.samples, control_stop_requested());
	dev_read_scalars(t->dev, Q_COMPUTE, &t->scalars);
	grad_totals_read(&r->grad, t->totals);
}

/* The next step, or batch of an evaluation, and a checkpoint must still fit into max_minutes. Before the first checkpoint it is
 * taken to last as long as a step. */
static bool time_is_up(const struct train *t)
{
	double limit = t->config->run.max_minutes * 60.0;
	return limit > 0 && clock_now() - t->begin + t->longest_step + fmax(t->longest_step, t->longest_save) >= limit;
}

bool train_evaluate(struct train *t, double *loss)
{
	const struct config *c = t->config;
	const struct feed feed = {read_valid, &t->data};
	double all[TOTALS] = {0};
	int64_t windows = t->data.valid_windows, global = c->batch.global;
	if (c->eval.batches <= windows / global)
		windows = c->eval.batches * global;
	int64_t each = c->batch.micro * t->run.mesh.size[AXIS_DATA]; /* windows a micro-batch of all data ranks */

	log_phase("evaluation");
	for (int64_t first = 0; first < windows && all[TOTAL_STOP] == 0; first += global) {
		int64_t here = windows - first < global ? windows - first : global;
		double totals[TOTALS];
		step_evaluate(&t->run.step, &feed, first, (int)((here + each - 1) / each), grad_totals(&t->run.grad));
		if (time_is_up(t))
			control_request_stop();
		grad_totals_reduce(&t->run.grad, first + here < windows && control_stop_requested(), totals);
		for (int i = 0; i < TOTALS; i++)
			all[i] += totals[i];
	}
	log_phase(NULL);
	*loss = all[TOTAL_TOKENS] > 0 ? all[TOTAL_LOSS] / all[TOTAL_TOKENS] : 0.0;
	return all[TOTAL_STOP] == 0;
}

/* False: a stop was asked for. */
static bool evaluate(struct train *t)
{
	double loss;
	if (!train_evaluate(t, &loss)) {
		log_info("step %lld: the evaluation is given up, a stop is asked for", (long long)t->scalars.step);
		return false;
	}
	metrics_eval(t->metrics, t->scalars.step, loss);
	console_eval(t->console, t->scalars.step, loss);
	return true;
}

void train_save(struct train *t)
{
	struct error e;
	int pairs, sources = t->data.sources;
	struct config_pair *settings = config_pairs(t->config, &pairs);
	struct manifest_source *source = calloc((size_t)sources, sizeof *source);
	int64_t *taken = calloc((size_t)sources, sizeof *taken);
	double begin = clock_now();

	struct config_pair *tuning = calloc((size_t)t->tuning.count + 1, sizeof *tuning);
	check(source && taken && tuning);
	for (int i = 0; i < t->tuning.count; i++)
		tuning[i] = (struct config_pair){t->tuning.list[i].key, t->tuning.list[i].value};
	data_taken(&t->data, t->scalars.samples, taken);
	for (int i = 0; i < sources; i++)
		source[i] = (struct manifest_source){t->data.streams[i].shards[0].path, taken[i]};
	struct manifest_run m = {
		.counters = manifest_counters(&t->scalars),
		.sources = source, .source_count = sources, .settings = settings, .setting_count = pairs,
		.tuning = tuning, .tuning_count = t->tuning.count,
	};
	log_phase("checkpoint");
	run_compare_ends(&t->run);
	bool good = checkpoint_save(t->saver, &t->run.state, &m, &e);
	log_phase(NULL);
	if (good)
		t->saved_step = t->scalars.step;
	else if (comm_rank(t->world) == 0)
		log_warn("step %lld: no checkpoint saved, training goes on: %s", (long long)t->scalars.step, e.text);
	double seconds = clock_now() - begin;
	t->longest_save = fmax(t->longest_save, seconds);
	metrics_checkpoint(t->metrics, t->scalars.step, good ? NULL : e.text, seconds);
	config_free_pairs(settings, pairs);
	free(source);
	free(taken);
	free(tuning);
}

/* What rank 0 writes and shows of a step. */
static void report(struct train *t, double seconds)
{
	const struct scalars *s = &t->scalars;
	const struct config *c = t->config;
	double flops = run_step_flops(c) / comm_size(t->world) / seconds;
	double peak = dev_peak_flops(t->dev, c->precision.compute);
	struct metrics_step line = {
		.step = s->step, .samples = s->samples, .tokens = s->tokens, .loss = s->loss, .grad_norm = s->grad_norm,
		.lr = s->lr, .loss_scale = s->used_scale, .skipped = s->skipped, .step_seconds = seconds,
		.tokens_per_second = (double)(c->batch.global * c->model.sequence) / seconds,
		.tflops_per_device = flops * 1e-12, .mfu = peak > 0 ? flops / peak : (double)NAN,
		.memory_bytes = (int64_t)(memory_bytes(&t->run.memory) + dev_workspace(t->dev)),
	};
	char bad[128];

	metrics_step(t->metrics, &line);
	console_step(t->console, &line);
	if (s->skipped)
		metrics_overflow(t->metrics, s->step, s->used_scale, grad_bad_name(&t->run.grad, s->first_bad, bad, sizeof bad));
}

/* With random weights every token is about as likely as another: a loss far from ln V on the first step means that something
 * is wrong with the head or the data. */
static void check_first_loss(const struct train *t)
{
	double expected = log((double)t->config->model.vocab);
	if (t->scalars.step == 1 && t->found.path[0] == '\0' && comm_rank(t->world) == 0 && !t->scalars.skipped &&
	    fabs(t->scalars.loss - expected) > 0.25 * expected + 0.5)
		log_warn("the first loss is %.4g; random weights should give about ln(vocab) = %.4g", t->scalars.loss, expected);
}

static bool due(int64_t every, int64_t step)
{
	return every > 0 && step % every == 0;
}

int train_loop(struct train *t, struct error *e)
{
	const struct config *c = t->config;
	const struct scalars *s = &t->scalars;

	dev_set_timeout(t->dev, c->launch.step_timeout);
	if (s->step >= c->run.steps)
		log_info("step %lld of %lld: nothing left to do", (long long)s->step, (long long)c->run.steps);
	while (s->step < c->run.steps) {
		double begin = clock_now();
		step(t);
		double seconds = clock_now() - begin;
		report(t, seconds);
		check_first_loss(t);
		t->longest_step = fmax(t->longest_step, seconds);

		if (s->overflows >= c->precision.overflow_limit) {
			char bad[128];
			error_set(e, CODE_DIVERGED, "diverged: step %lld: %lld steps in a row were not finite at a loss scale "
				  "of %g; first %s", (long long)s->step, (long long)s->overflows, s->used_scale,
				  grad_bad_name(&t->run.grad, s->first_bad, bad, sizeof bad));
			return CODE_DIVERGED;
		}
		bool stop = t->totals[TOTAL_STOP] > 0, end = s->step >= c->run.steps;
		if (t->data.valid_windows > 0 && c->eval.every > 0 && (end || (!stop && s->step % c->eval.every == 0)) && !evaluate(t))
			stop = true;
		if (due(c->checkpoint.every, s->step) || end || stop)
			train_save(t);
		if (stop && !end) {
			metrics_signal(t->metrics, s->step, control_stop_signal());
			log_info("stopped on request at step %lld of %lld", (long long)s->step, (long long)c->run.steps);
		}
		if ((stop || end) && t->saved_step != s->step) {
			error_set(e, CODE_MACHINE, "%s, but without a checkpoint of step %lld", end ? "finished" : "stopped on request",
				  (long long)s->step);
			return CODE_MACHINE;
		}
		if (stop && !end)
			return CODE_STOPPED;
		if (time_is_up(t))
			control_request_stop();
	}
	return CODE_DONE;
}

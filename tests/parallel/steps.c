/* One rank of a job that drives steps directly, to look where metrics cannot: run under the test of the same name with
 * the mesh in the arguments: steps DATA TENSOR PIPELINE [section.key=value …].
 *
 * Overflow: one forced at steps 0, 1 and n skips exactly that step on every rank. The run is compared with
 * one that never sees that step's samples: the weights that follow are the same bits.
 * Count: collectives and bytes of a step, slots, bytes of arenas; and the ledger, which the counting device makes, has the
 * same calls and bytes in every group. */
#include "../launch/job.h"
#include "base/rng.h"
#include "train/ledger.h"

#include <math.h>
#include <xxhash.h>

enum { STEPS = 6 };

struct rig {
	struct job job;
	struct config config;
	struct run run;
};

static const char settings[] =
	"[run]\nsteps = 6\nseed = 3\n"
	"[model]\nlayers = 4\nhidden = 16\nheads = 4\nsequence = 8\nvocab = 257\n"
	"[batch]\nglobal = 8\nmicro = 1\n"
	"[optimizer]\nlr = 0.01\n"
	"[precision]\nloss_scale_initial = 256\nloss_scale_window = 4\n"
	"[data]\ntrain = none\n";

static bool read_made_up(void *context, int64_t sample, int32_t *inputs, int32_t *targets, struct error *e)
{
	int64_t T = *(const int64_t *)context;
	(void)e;
	for (int64_t i = 0; i < T; i++) {
		struct philox w = philox(1, (struct philox){{(uint32_t)sample, (uint32_t)i, 0, 0}});
		inputs[i] = (int32_t)(w.word[0] % 257);
		targets[i] = (int32_t)(w.word[1] % 257);
	}
	return true;
}

static void open_run(struct rig *r)
{
	struct error e = {0};
	struct mesh mesh;
	job_must(mesh_init(&mesh, &r->config.parallel, r->job.launch.rank, r->job.launch.size, "steps", "none", &e), &e);
	job_must(run_open(&r->run, &r->config, &mesh, r->job.dev, r->job.world, &e), &e);
	run_initialise(&r->run);
}

/* What had gone over the data axis when the backwards of the last step were queued. */
static struct comm_count queued;

static void one_step(struct run *r, struct scalars *s, double totals[TOTALS])
{
	int64_t T = r->config->model.sequence;
	struct feed feed = {read_made_up, &T};
	dev_read_scalars(r->dev, Q_COMPUTE, s);
	step_train(&r->step, &feed, s->samples, grad_totals(&r->grad));
	queued = comm_count(r->groups.data);
	grad_reduce(&r->grad, false);
	optim_update(&r->optim);
	dev_read_scalars(r->dev, Q_COMPUTE, s);
	grad_totals_read(&r->grad, totals);
}

/* A hash of everything that the update may move, on this rank. */
static uint64_t state_hash(const struct run *r)
{
	XXH64_hash_t h = 0;
	for (int q = 0; q < QUEUES; q++) /* weights may still be on their way */
		dev_finish(r->dev, dev_mark(r->dev, (enum queue)q));
	for (int i = 0; i < r->state.count; i++)
		h = XXH3_64bits_withSeed(r->state.entries[i].local.data, tensor_bytes(r->state.entries[i].local), h);
	for (int i = 0; i < r->params.count; i++)
		if (r->params.params[i].here)
			h = XXH3_64bits_withSeed(r->params.params[i].weight.data, tensor_bytes(r->params.params[i].weight), h);
	return h;
}

static int failures;

static void expect(bool good, const char *what, int at)
{
	if (!good) {
		failures++;
		fprintf(stderr, "rank %d: overflow at step %d: %s\n", log_rank(), at, what);
	}
}

/* All ranks see the same verdict. */
static void expect_alike(struct rig *r, const struct scalars *s, int at)
{
	struct scalars *all = calloc((size_t)r->job.launch.size, sizeof *all);
	check(all);
	comm_host_gather(r->job.world, all, s, sizeof *s);
	for (int i = 0; i < r->job.launch.size; i++)
		expect(all[i].step == s->step && all[i].updates == s->updates && all[i].loss_scale == s->loss_scale &&
		       all[i].skipped == s->skipped && all[i].first_bad == s->first_bad, "ranks disagree", at);
	free(all);
}

static void overflow_at(struct rig *r, int at)
{
	struct scalars s, before;
	double totals[TOTALS], losses[STEPS];
	uint64_t hash = 0;

	run_initialise(&r->run);
	for (int i = 0; i < STEPS; i++) {
		dev_read_scalars(r->job.dev, Q_COMPUTE, &before);
		if (i == at) {
			before.loss_scale = 1e30; /* no FP16 gradient survives it */
			dev_write_scalars(r->job.dev, Q_COMPUTE, &before);
		}
		uint64_t hash_before = state_hash(&r->run);
		one_step(&r->run, &s, totals);
		expect(s.skipped == (i == at), "skipped where it should not, or not where it should", at);
		expect((state_hash(&r->run) == hash_before) == (i == at), "weights or moments moved", at);
		expect(s.step == i + 1 && s.samples == 8 * (i + 1), "data or attempts not counted", at);
		expect(s.updates == (i < at ? i + 1 : i), "updates counted wrong", at);
		expect(isfinite(s.loss), "loss is not finite", at);
		expect(!s.skipped || !isfinite(s.grad_norm), "norm hides the overflow", at);
		expect(!s.skipped || s.loss_scale == 5e29, "the scale did not fall by half", at);
		expect_alike(r, &s, at);
		if (s.skipped) { /* go on as if this had been an ordinary overflow */
			s.loss_scale = 128;
			dev_write_scalars(r->job.dev, Q_COMPUTE, &s);
		}
		losses[i] = s.loss;
	}
	hash = state_hash(&r->run);

	run_initialise(&r->run);
	for (int i = 0; i < STEPS; i++) {
		dev_read_scalars(r->job.dev, Q_COMPUTE, &s);
		if (i == at) { /* the step does not take place: its samples pass, the scale is half */
			s.step++;
			s.samples += 8;
			s.good_steps = 0;
			s.loss_scale = 128;
			dev_write_scalars(r->job.dev, Q_COMPUTE, &s);
			continue;
		}
		one_step(&r->run, &s, totals);
		expect(s.loss == losses[i], "later losses are not those of a run without the step", at);
	}
	expect(state_hash(&r->run) == hash, "later weights are not those of a run without the step", at);
}

static void expect_count(const char *what, int64_t got, int64_t want)
{
	if (got == want)
		return;
	failures++;
	fprintf(stderr, "rank %d: %s: %lld, not %lld\n", log_rank(), what, (long long)got, (long long)want);
}

/* Elements of parameters as they lie in buckets: each behind the other at multiples of 128. */
static int64_t padded(int64_t elements)
{
	return (elements + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

static int64_t norm(const struct run *run)
{
	return 2 * padded(run->config->model.hidden);
}

/* Of a layer, what every tensor rank has whole: two norms and the biases behind the sums; and what they share out. */
static int64_t layer_whole(const struct run *run)
{
	return 2 * norm(run) + 2 * padded(run->config->model.hidden);
}

static int64_t layer_shared(const struct run *run)
{
	const struct model_settings *m = &run->config->model;
	int64_t C = m->hidden, F = m->ffn, t = run->gpt.env.tensor_size, gates = m->activation == ACTIVATION_SWIGLU;
	int64_t up = (1 + gates) * F / t; /* outputs */
	int64_t qkv = (C + 2 * m->kv_heads * m->head_size) / t;
	return padded(qkv * C) + padded(qkv) + padded(C * C / t) + padded(up * C) + padded(up) + padded(F * C / t);
}

static int64_t position(const struct run *run)
{
	const struct model_settings *m = &run->config->model;
	return m->position == POSITION_LEARNED ? padded(m->sequence * m->hidden) : 0;
}

static int64_t token(const struct run *run)
{
	int64_t t = run->gpt.env.tensor_size;
	return param_padded_vocab(run->config->model.vocab, (int)t) / t * run->config->model.hidden;
}

/* A bucket of so many elements can be cut into slices of whole multiples of 128. */
static int64_t bucket(const struct run *run, int64_t elements)
{
	int64_t multiple = (int64_t)PARAM_ALIGN * run->slices.count;
	return (elements + multiple - 1) / multiple * multiple;
}

/* Parameters on this rank; a tied head on another rank than the embedding is one too. */
static int64_t parameters(const struct run *run)
{
	bool tied = run->config->model.tied, first = run->gpt.first, last = run->gpt.last;
	return run->gpt.layers * bucket(run, layer_whole(run) + layer_shared(run)) +
	       (first ? bucket(run, position(run) + token(run)) : 0) +
	       (last ? bucket(run, norm(run) + (tied ? 0 : token(run))) : 0) +
	       (last && tied && !first ? bucket(run, token(run)) : 0);
}

/* The head has a bucket of its own where it is tied to the embedding of another rank. */
static int64_t buckets(const struct run *run)
{
	bool copy = run->gpt.last && run->config->model.tied && !run->gpt.first;
	return run->gpt.layers + run->gpt.first + run->gpt.last + copy;
}

/* Those whose sums are queued beside backward: all but the one with a token table that is on another rank too. */
static int64_t early_buckets(const struct run *run)
{
	bool copies = run->config->model.tied && run->gpt.first != run->gpt.last;
	return buckets(run) - copies;
}

/* Calls and bytes on the tensor axis. Without sequence parallelism two all-reduces a layer each way, one for the
 * embedding, one for the head's input gradient; a gather of the loss statistics a block of logits. With it 2 gathers and 2
 * reduce-scatters a layer forward, 4 and 2 backward, a reduce-scatter for the embedding and a gather for its gradient, a
 * gather and a reduce-scatter for the head; and one all-reduce a step for each bucket that has whole parameters. A split
 * backward gathers the output gradients of the two row-parallel linears once more. Selective recompute adds nothing; full
 * repeats forward's but for the MLP's sum. Each but that of the statistics is made once for each chunk of the rows. */
static void count_tensor(const struct run *run, const struct comm_count *before, const struct comm_count *after)
{
	const struct env *env = &run->gpt.env;
	int64_t micros = run->micros, bytes = env->tokens * env->model->hidden * 2; /* FP16 */
	int64_t chunks = env->chunks;
	int64_t first = run->gpt.first, last = run->gpt.last, layers = run->gpt.layers; /* of all chunks */
	int64_t all_reduces = env->sequence ? layers + first * (position(run) > 0) + last : micros * (4 * layers + first + last);
	int64_t twice = run->config->parallel.schedule == PIPELINE_ZERO_BUBBLE && run->step.stage > 0 ? 2 : 0;
	int64_t gathers = env->sequence ? micros * ((6 + twice) * layers + first + last) : 0;
	int64_t scatters = env->sequence ? micros * (4 * layers + first + last) : 0;
	int64_t again = run->config->parallel.recompute == RECOMPUTE_FULL ? micros * layers : 0;
	all_reduces += env->sequence ? 0 : again;
	gathers += env->sequence ? 2 * again : 0;
	scatters += env->sequence ? again : 0;
	int64_t calls[COMM_CALLS], moved[COMM_CALLS];
	for (int i = 0; i < COMM_CALLS; i++) {
		calls[i] = after->calls[i] - before->calls[i];
		moved[i] = after->bytes[i] - before->bytes[i];
	}
	int64_t whole = layers * layer_whole(run) + first * position(run) + last * norm(run);
	int64_t stats = micros * last, stats_bytes = stats * env->tensor_size * env->tokens * 3 * 4;
	expect_count("tensor all-reduces", calls[COMM_ALL_REDUCE], env->sequence ? all_reduces : chunks * all_reduces);
	expect_count("their bytes", moved[COMM_ALL_REDUCE], env->sequence ? 4 * whole : all_reduces * bytes);
	expect_count("tensor gathers", calls[COMM_ALL_GATHER], chunks * gathers + stats);
	expect_count("their bytes", moved[COMM_ALL_GATHER], gathers * bytes + stats_bytes);
	expect_count("tensor reduce-scatters", calls[COMM_REDUCE_SCATTER], chunks * scatters);
	expect_count("their bytes", moved[COMM_REDUCE_SCATTER], scatters * bytes);
	expect_count("other tensor calls", calls[COMM_BROADCAST] + calls[COMM_EXCHANGE], 0);
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Micro-batches of a chunk that are kept at once. */
static int64_t slots(const struct run *run)
{
	int64_t P = run->step.stages, p = run->step.stage, m = run->micros, v = run->config->parallel.chunks;
	switch (run->config->parallel.schedule) {
	case PIPELINE_INTERLEAVED:
		return (v - 1) * least(P, m) + least(2 * (P - 1 - p) + 1, m);
	case PIPELINE_ZERO_BUBBLE: /* what 1F1B keeps on rank 0 */
		return least(P, m);
	case PIPELINE_1F1B:
		break;
	}
	return least(P - p, m);
}

/* Micro-batches at most between the parts of a backward: the weight part comes as many later as there are ranks before. */
static int64_t waits(const struct run *run)
{
	int64_t p = run->step.stage;
	return run->config->parallel.schedule == PIPELINE_ZERO_BUBBLE && p > 0 ? least(p + 1, run->micros) : 0;
}

/* Elements as the arena hands them out. */
static int64_t bytes(int64_t elements, int64_t size)
{
	return (elements * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* A slot, also one that waits for its weight part, holds as many blocks as the largest chunk has, each x, n1, x1, n2
 * (rows that are here), qkv, a, pre and g in FP16, and the statistics of norms and softmax; token ids at the ends of the
 * model. Selective recompute leaves n1, n2 and g out and the norms' statistics with them, full all but x; but for as many
 * as may wait for weight parts they are there. */
static int64_t activations(const struct run *run)
{
	const struct model_settings *m = &run->config->model;
	int64_t N = run->gpt.env.tokens, C = m->hidden, F = m->ffn, t = run->gpt.env.tensor_size, largest = 0;
	int64_t R = run->gpt.env.sequence ? N / t : N;
	int64_t before = m->activation == ACTIVATION_SWIGLU ? 2 * F : F;
	int64_t x = bytes(R * C, 2), cheap = 2 * (x + 2 * bytes(R, 4)) + bytes(N * F / t, 2);
	int64_t dear = x + bytes(N * (C + 2 * m->kv_heads * m->head_size) / t, 2) + bytes(N * C / t, 2) + bytes(N * m->heads / t, 4) +
		       bytes(N * before / t, 2);
	enum recompute_choice choice = run->config->parallel.recompute;
	int64_t left_out = (choice == RECOMPUTE_FULL ? dear : 0) + (choice == RECOMPUTE_NONE ? 0 : cheap);
	int64_t block = x + dear + cheap - left_out;
	for (int v = 0; v < run->config->parallel.chunks; v++) {
		int64_t here = run->stage_layers[v * run->step.stages + run->step.stage];
		largest = here > largest ? here : largest;
	}
	return slots(run) * (largest * block + (2 * run->gpt.first + run->gpt.last) * bytes(N, 4)) +
	       waits(run) * largest * left_out;
}

/* Bytes that a rank sends for a call on n bytes in a ring of d, which is the least there can be: an all-reduce 2n(d − 1)/d,
 * a reduce-scatter and a gather n(d − 1)/d. For P parameters in FP16: 8P(d − 1)/d, and with a sharded optimizer 6P(d − 1)/d,
 * where besides the squares of the pieces are added. */
static void count_data(const struct run *run, const struct comm_count *before, const struct comm_count *after)
{
	int64_t P = parameters(run), d = comm_size(run->groups.data), n = buckets(run), sent = 0;
	bool sharded = run->config->parallel.shard_optimizer;
	int64_t want[COMM_CALLS] = {
		[COMM_ALL_REDUCE] = sharded ? 1 : n, [COMM_REDUCE_SCATTER] = sharded ? n : 0,
		[COMM_ALL_GATHER] = sharded ? n : 0,
	};
	for (int i = 0; i < COMM_CALLS; i++) {
		expect_count("data calls", after->calls[i] - before->calls[i], want[i]);
		sent += (i == COMM_ALL_REDUCE ? 2 : 1) * (after->bytes[i] - before->bytes[i]) * (d - 1) / d;
	}
	enum comm_call sum = sharded ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE;
	expect_count("sums queued in backward", queued.calls[sum] - before->calls[sum], early_buckets(run));
	int64_t squares = sharded ? 8 * (int64_t)run->params.count * run->params.tensor : 0;
	expect_count("bytes sent to data ranks", sent, ((sharded ? 6 : 8) * P + 2 * squares) * (d - 1) / d);
}

/* 2 + 4 + 12/d bytes a parameter. */
static void count_memory(const struct run *run)
{
	const struct arena *a = run->memory.arena;
	int64_t P = parameters(run), d = run->config->parallel.shard_optimizer ? comm_size(run->groups.data) : 1;
	expect_count("bytes of weights", (int64_t)a[MEMORY_WEIGHTS].used, 2 * P);
	expect_count("bytes of gradients", (int64_t)a[MEMORY_GRADIENTS].used, 4 * P);
	expect_count("bytes of the optimizer", (int64_t)a[MEMORY_OPTIMIZER].used, 12 * P / d);
}

/* From each rank of c and for each micro-batch and layer, keys and values c − 1 times forward, and again where attention is
 * computed again; backward they and, one step behind, c times FP32 sums of their gradients. What is sent is also received. */
static void count_context(const struct run *run, const struct comm_count *before, const struct comm_count *after)
{
	const struct env *env = &run->gpt.env;
	const struct model_settings *m = &run->config->model;
	int64_t c = env->context_size, elements = env->tokens * 2 * m->kv_heads * m->head_size / env->tensor_size;
	int64_t passes = run->micros * run->gpt.layers;
	int64_t forwards = run->config->parallel.recompute == RECOMPUTE_FULL ? 2 : 1;
	expect_count("context exchanges", after->calls[COMM_EXCHANGE] - before->calls[COMM_EXCHANGE],
		     passes * (forwards * (c - 1) + c + 1));
	expect_count("their bytes", after->bytes[COMM_EXCHANGE] - before->bytes[COMM_EXCHANGE],
		     2 * passes * elements * (forwards * (c - 1) * 2 + (c - 1) * 2 + c * 4));
	for (int i = 0; i < COMM_CALLS; i++)
		if (i != COMM_EXCHANGE)
			expect_count("other context calls", after->calls[i] - before->calls[i], 0);
}

/* Between virtual stages an activation and a gradient for each
 * micro-batch, of the rows that are here. */
static void count(struct rig *r)
{
	const struct run *run = &r->run;
	struct scalars s;
	double totals[TOTALS];
	struct comm_count tensor = comm_count(run->groups.tensor), data = comm_count(run->groups.data),
			  pipe = comm_count(run->groups.pipe), context = comm_count(run->groups.context);
	one_step(&r->run, &s, totals);
	struct comm_count after = comm_count(run->groups.tensor);
	int64_t micros = run->micros, rows = run->gpt.env.rows * r->config.model.hidden * 2;
	if (comm_size(run->groups.tensor) > 1)
		count_tensor(run, &tensor, &after);
	after = comm_count(run->groups.data);
	if (comm_size(run->groups.data) > 1)
		count_data(run, &data, &after);
	after = comm_count(run->groups.context);
	if (comm_size(run->groups.context) > 1)
		count_context(run, &context, &after);
	after = comm_count(run->groups.pipe);
	if (comm_size(run->groups.pipe) > 1)
		expect_count("pipeline bytes", after.bytes[COMM_EXCHANGE] - pipe.bytes[COMM_EXCHANGE],
			     micros * rows * 2 * (2 * run->gpt.chunk_count - run->gpt.first - run->gpt.last));
	count_memory(run);
	expect_count("slots", run->gpt.slot_count, slots(run));
	expect_count("bytes of activations", (int64_t)run->memory.arena[MEMORY_ACTIVATIONS].used, activations(run));
}

static void expect_ledger(const struct ledger *l, const struct comm *c, const struct comm_count *before)
{
	static const struct ledger_group none;
	const struct ledger_group *g = ledger_find(l, comm_name(c));
	struct comm_count after = comm_count(c);
	g = g ? g : &none;
	for (int i = 0; i < COMM_CALLS; i++) {
		expect_count("calls in the ledger", g->count.calls[i], after.calls[i] - before->calls[i]);
		expect_count("bytes in the ledger", g->count.bytes[i], after.bytes[i] - before->bytes[i]);
	}
}

/* A real step against the counted one. */
static void count_ledger(struct rig *r)
{
	struct groups *g = &r->run.groups;
	struct comm *comms[] = {g->world, g->tensor, g->context, g->data, g->pipe, g->ends};
	enum { COUNT = sizeof comms / sizeof *comms };
	struct comm_count before[COUNT];
	struct ledger l;
	struct scalars s;
	double totals[TOTALS];
	for (int i = 0; i < COUNT; i++)
		if (comms[i])
			before[i] = comm_count(comms[i]);
	one_step(&r->run, &s, totals);
	ledger_of_run(&l, &r->run);
	for (int i = 0; i < COUNT; i++)
		if (comms[i])
			expect_ledger(&l, comms[i], &before[i]);
	for (int k = 0; k < MEMORY_KINDS; k++)
		expect_count(memory_name((enum memory_kind)k), l.arena[k], (int64_t)r->run.memory.arena[k].used);
	const struct gpt *gpt = &r->run.gpt;
	expect_count("token ids", l.ids, gpt->slot_count * (2 * gpt->first + gpt->last) * bytes(gpt->env.tokens, 4));
}

int main(int argc, char **argv)
{
	struct rig r = {0};
	struct error e = {0};
	char mesh[3][64];
	const char *sets[8] = {mesh[0], mesh[1], mesh[2]};

	check(argc >= 4 && argc <= 9);
	for (int i = 4; i < argc; i++)
		sets[i - 1] = argv[i];
	snprintf(mesh[0], sizeof mesh[0], "parallel.data=%s", argv[1]);
	snprintf(mesh[1], sizeof mesh[1], "parallel.tensor=%s", argv[2]);
	snprintf(mesh[2], sizeof mesh[2], "parallel.pipeline=%s", argv[3]);
	job_launch(&r.job, 60);
	job_open(&r.job);
	job_must(config_parse(&r.config, "steps.ini", settings, sizeof settings - 1, sets, argc - 1, &e), &e);
	job_must(config_check(&r.config, &e), &e);
	open_run(&r);
	for (int at = 0; at < STEPS; at += at < 1 ? 1 : STEPS / 2)
		overflow_at(&r, at);
	count(&r);
	count_ledger(&r);
	int all[64];
	comm_host_gather(r.job.world, all, &failures, sizeof failures);
	run_close(&r.run);
	config_finish(&r.config);
	job_close(&r.job);
	return failures != 0;
}

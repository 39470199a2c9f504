#include "model/env.h"

#include "model/alibi.h"
#include "model/rope.h"

struct span env_share(const struct env *env, int context_rank, int64_t sample)
{
	return (struct span){
		.sample = sample, .first = context_rank * (env->length / 2), .length = env->length,
		.sequence = env->model->sequence, .jump = (env->context_size - 1 - context_rank) * env->length,
	};
}

struct dropout env_dropout(const struct env *env, const struct pass *pass, int64_t layer, enum dropout_kind kind)
{
	const struct model_settings *m = env->model;
	bool attention = kind == DROPOUT_ATTENTION; /* runs on whole samples */
	double rate = attention ? m->attention_dropout : m->dropout;
	struct span span = env_share(env, env->context_rank, pass->sample);
	if (env->sequence && !attention) {
		span.piece = env->rows / env->chunks;
		span.row = span.piece * env->tensor_rank;
		span.stride = span.piece * env->tensor_size;
	}
	return (struct dropout){
		.rate = pass->training ? rate : 0.0,
		.seed = env->seed,
		.site = (uint32_t)(8 * layer + (int64_t)kind),
		.span = span,
	};
}

struct tensor env_chunk(struct tensor t, int i, int chunks)
{
	int64_t rows = t.shape[0] / chunks;
	return tensor_rows(t, rows * i, rows);
}

/* When what was put on the tensor queue so far is done; without overlap, computing waits for it now. */
static struct mark begun(const struct env *env)
{
	struct mark done = dev_mark(env->dev, Q_TENSOR);
	if (!env->overlap)
		env_wait(env, done);
	return done;
}

struct gathered env_gather_begin(const struct env *env, struct tensor x)
{
	if (!env->sequence)
		return (struct gathered){.whole = x, .chunks = 1, .there = {dev_mark(env->dev, Q_TENSOR)}};
	struct gathered g = {.whole = env->gathered, .chunks = env->chunks};
	dev_wait(env->dev, Q_TENSOR, dev_mark(env->dev, Q_COMPUTE));
	for (int i = 0; i < g.chunks; i++) {
		comm_all_gather(env->tensor, Q_TENSOR, env_chunk(g.whole, i, g.chunks), env_chunk(x, i, g.chunks));
		g.there[i] = begun(env);
	}
	return g;
}

struct tensor env_gather(const struct env *env, struct tensor x)
{
	struct gathered g = env_gather_begin(env, x);
	env_wait(env, g.there[g.chunks - 1]);
	return g.whole;
}

struct tensor env_partial(const struct env *env, struct tensor out)
{
	return env->sequence ? env->partial : out;
}

struct mark env_reduce_chunk(const struct env *env, struct tensor out, int i)
{
	struct tensor part = env_chunk(env_partial(env, out), i, env->chunks);
	if (env->tensor_size == 1)
		return dev_mark(env->dev, Q_TENSOR);
	dev_wait(env->dev, Q_TENSOR, dev_mark(env->dev, Q_COMPUTE));
	if (env->sequence)
		comm_reduce_scatter(env->tensor, Q_TENSOR, env_chunk(out, i, env->chunks), part);
	else
		comm_all_reduce(env->tensor, Q_TENSOR, part);
	return begun(env);
}

struct mark env_reduce_begin(const struct env *env, struct tensor out)
{
	struct mark done = {0};
	for (int i = 0; i < env->chunks; i++)
		done = env_reduce_chunk(env, out, i);
	return done;
}

void env_reduce(const struct env *env, struct tensor out)
{
	env_wait(env, env_reduce_begin(env, out));
}

void env_wait(const struct env *env, struct mark m)
{
	if (env->tensor_size > 1)
		dev_wait(env->dev, Q_COMPUTE, m);
}

/* The most chunks, a power of two, that cut the rows of every rank evenly. */
static int chunks_of(const struct env *env)
{
	int chunks = env->tensor_size > 1 && !env->whole ? ENV_CHUNKS : 1;
	while (chunks > 1 && (env->rows % chunks != 0 || env->tokens / chunks < ENV_CHUNK_ROWS))
		chunks /= 2;
	return chunks;
}

void env_build(struct env *env, struct memory *memory)
{
	env->chunks = chunks_of(env);
	if (env->model->position == POSITION_ROPE)
		env->rope = rope_table(env->model, dtype_sum(env->dtype), &memory->arena[MEMORY_TABLES], env->dev);
	if (env->model->position == POSITION_ALIBI) {
		int64_t heads = env->model->heads / env->tensor_size;
		env->slopes = alibi_slopes(env->model->heads, heads * env->tensor_rank, heads, dtype_sum(env->dtype),
					   &memory->arena[MEMORY_TABLES], env->dev);
	}
	if (!env->sequence)
		return;
	env->gathered = env_tokens(env, memory, MEMORY_SCRATCH, env->model->hidden);
	env->partial = env_tokens(env, memory, MEMORY_SCRATCH, env->model->hidden);
}

struct tensor env_rows(const struct env *env, struct memory *memory, enum memory_kind kind, int64_t columns)
{
	return arena_2d(&memory->arena[kind], env->dtype, env->rows, columns);
}

struct tensor env_tokens(const struct env *env, struct memory *memory, enum memory_kind kind, int64_t columns)
{
	return arena_2d(&memory->arena[kind], env->dtype, env->tokens, columns);
}

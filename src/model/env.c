#include "model/env.h"

struct dropout env_dropout(const struct env *env, const struct pass *pass, int64_t layer, enum dropout_kind kind)
{
	const struct model_settings *m = env->model;
	bool attention = kind == DROPOUT_ATTENTION; /* runs on whole sequences */
	double rate = attention ? m->attention_dropout : m->dropout;
	return (struct dropout){
		.rate = pass->training ? rate : 0.0,
		.seed = env->seed,
		.site = (uint32_t)(8 * layer + (int64_t)kind),
		.span = {
			.sample = pass->sample, .row = attention ? 0 : env->first_row,
			.length = m->sequence, .sequence = m->sequence,
		},
	};
}

struct tensor env_gather_begin(const struct env *env, struct tensor x, struct mark *done)
{
	*done = dev_mark(env->dev, Q_TENSOR);
	if (!env->sequence)
		return x;
	dev_wait(env->dev, Q_TENSOR, dev_mark(env->dev, Q_COMPUTE));
	comm_all_gather(env->tensor, Q_TENSOR, env->gathered, x);
	*done = dev_mark(env->dev, Q_TENSOR);
	return env->gathered;
}

struct tensor env_gather(const struct env *env, struct tensor x)
{
	struct mark done;
	struct tensor whole = env_gather_begin(env, x, &done);
	env_wait(env, done);
	return whole;
}

struct tensor env_partial(const struct env *env, struct tensor out)
{
	return env->sequence ? env->partial : out;
}

struct mark env_reduce_begin(const struct env *env, struct tensor out)
{
	if (env->tensor_size > 1) {
		dev_wait(env->dev, Q_TENSOR, dev_mark(env->dev, Q_COMPUTE));
		if (env->sequence)
			comm_reduce_scatter(env->tensor, Q_TENSOR, out, env->partial);
		else
			comm_all_reduce(env->tensor, Q_TENSOR, out);
	}
	return dev_mark(env->dev, Q_TENSOR);
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

void env_build(struct env *env, struct memory *memory)
{
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

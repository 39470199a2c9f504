#include "model/env.h"

struct dropout env_dropout(const struct env *env, const struct pass *pass, int64_t layer, enum dropout_kind kind)
{
	const struct model_settings *m = env->model;
	double rate = kind == DROPOUT_ATTENTION ? m->attention_dropout : m->dropout;
	return (struct dropout){
		.rate = pass->training ? rate : 0.0,
		.seed = env->seed,
		.site = (uint32_t)(8 * layer + (int64_t)kind),
		.span = {.sample = pass->sample, .length = m->sequence, .sequence = m->sequence},
	};
}

struct mark env_sum_begin(const struct env *env, struct tensor t)
{
	if (env->tensor_size > 1) {
		dev_wait(env->dev, Q_TENSOR, dev_mark(env->dev, Q_COMPUTE));
		comm_all_reduce(env->tensor, Q_TENSOR, t);
	}
	return dev_mark(env->dev, Q_TENSOR);
}

void env_sum_end(const struct env *env, struct mark m)
{
	if (env->tensor_size > 1)
		dev_wait(env->dev, Q_COMPUTE, m);
}

struct tensor env_rows(const struct env *env, struct memory *memory, enum memory_kind kind, int64_t columns)
{
	return arena_2d(&memory->arena[kind], env->dtype, env->tokens, columns);
}

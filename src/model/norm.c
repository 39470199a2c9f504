#include "model/norm.h"

void norm_build(struct norm *n, const struct env *env, struct memory *memory, const char *name)
{
	*n = (struct norm){.env = env};
	n->weight = param_use(env->params, memory, false, "%s.weight", name);
	if (env->model->norm == NORM_LAYER && env->model->bias)
		n->bias = param_use(env->params, memory, false, "%s.bias", name);
}

void norm_build_saved(struct norm_saved *s, const struct env *env, struct memory *memory, enum memory_kind kind)
{
	enum dtype sum = dtype_sum(env->dtype);
	*s = (struct norm_saved){0};
	if (env->model->norm == NORM_LAYER)
		s->mean = arena_1d(&memory->arena[kind], sum, env->rows);
	s->rstd = arena_1d(&memory->arena[kind], sum, env->rows);
}

static struct tensor bias_of(const struct norm *n)
{
	return n->bias ? n->bias->weight : (struct tensor){0};
}

void norm_forward(const struct norm *n, const struct norm_saved *s, struct tensor out, struct tensor x)
{
	op_norm_forward(n->env->dev, &(struct op_norm_forward){
		.out = out, .mean = s->mean, .rstd = s->rstd, .x = x,
		.weight = n->weight->weight, .bias = bias_of(n),
		.kind = n->env->model->norm, .epsilon = n->env->model->norm_epsilon,
	});
}

void norm_residual_forward(const struct norm *n, const struct norm_saved *s, struct tensor out, struct tensor sum,
			   struct tensor residual, struct tensor x, struct tensor bias, struct dropout dropout)
{
	op_residual_forward(n->env->dev, &(struct op_residual_forward){
		.sum = sum, .residual = residual, .x = x, .bias = bias, .dropout = dropout,
		.out = out, .mean = s->mean, .rstd = s->rstd,
		.norm_weight = n->weight->weight, .norm_bias = bias_of(n),
		.kind = n->env->model->norm, .epsilon = n->env->model->norm_epsilon,
	});
}

void norm_backward(const struct norm *n, const struct norm_saved *s, struct tensor dx, struct tensor dout,
		   struct tensor dresidual, struct tensor x)
{
	op_norm_backward(n->env->dev, &(struct op_norm_backward){
		.dx = dx, .dweight = n->weight->grad, .dbias = n->bias ? n->bias->grad : (struct tensor){0},
		.dout = dout, .dresidual = dresidual, .x = x, .mean = s->mean, .rstd = s->rstd,
		.weight = n->weight->weight, .kind = n->env->model->norm,
	});
}

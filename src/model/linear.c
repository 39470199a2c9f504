#include "model/linear.h"

void linear_build(struct linear *l, const struct env *env, struct memory *memory, int64_t in, bool has_bias,
		  const char *name)
{
	*l = (struct linear){.env = env, .in = in};
	l->weight = param_use(env->params, memory, false, "%s.weight", name);
	if (has_bias)
		l->bias = param_use(env->params, memory, false, "%s.bias", name);
	int64_t count = tensor_count(l->weight->weight);
	check(count % in == 0);
	l->out = count / in;
}

static struct tensor weight(const struct linear *l)
{
	return tensor_as_rows(l->weight->weight, l->out);
}

static struct tensor flat(struct tensor t)
{
	return tensor_1d(t.data, t.dtype, tensor_count(t));
}

struct tensor linear_bias(const struct linear *l)
{
	return l->bias ? flat(l->bias->weight) : (struct tensor){0};
}

struct tensor linear_dbias(const struct linear *l)
{
	return l->bias ? flat(l->bias->grad) : (struct tensor){0};
}

void linear_column_forward(const struct linear *l, struct tensor y, struct tensor x)
{
	struct gathered g = env_gather_begin(l->env, x);
	for (int i = 0; i < g.chunks; i++) {
		env_wait(l->env, g.there[i]);
		op_gemm(l->env->dev, &(struct op_gemm){
			.out = env_chunk(y, i, g.chunks), .a = env_chunk(g.whole, i, g.chunks), .b = weight(l),
			.b_transposed = true, .epilogue = l->bias ? GEMM_BIAS : GEMM_PLAIN, .bias = linear_bias(l),
		});
	}
}

void linear_gelu_forward(const struct linear *l, struct tensor y, struct tensor pre, struct tensor x)
{
	struct gathered g = env_gather_begin(l->env, x);
	for (int i = 0; i < g.chunks; i++) {
		env_wait(l->env, g.there[i]);
		op_gemm(l->env->dev, &(struct op_gemm){
			.out = env_chunk(y, i, g.chunks), .a = env_chunk(g.whole, i, g.chunks), .b = weight(l),
			.b_transposed = true, .epilogue = GEMM_BIAS_GELU, .bias = linear_bias(l),
			.aux = env_chunk(pre, i, g.chunks), .gelu = model_gelu(l->env->model),
		});
	}
}

void linear_row_forward(const struct linear *l, struct tensor y, struct tensor x)
{
	const int chunks = l->env->chunks;
	struct mark sum = {0};
	for (int i = 0; i < chunks; i++) {
		op_gemm(l->env->dev, &(struct op_gemm){
			.out = env_chunk(env_partial(l->env, y), i, chunks), .a = env_chunk(x, i, chunks), .b = weight(l),
			.b_transposed = true,
		});
		sum = env_reduce_chunk(l->env, y, i);
	}
	env_wait(l->env, sum);
}

static void weight_backward(const struct linear *l, struct tensor dy, struct tensor x)
{
	op_gemm(l->env->dev, &(struct op_gemm){
		.out = tensor_as_rows(l->weight->grad, l->out), .a = dy, .a_transposed = true, .b = x,
		.accumulate = true,
	});
}

void linear_column_backward(const struct linear *l, enum backward_parts parts, struct tensor dx, struct tensor dy,
			    struct tensor x)
{
	struct gathered g = {0};
	struct mark sum = {0};
	if (parts & BACKWARD_WEIGHT)
		g = env_gather_begin(l->env, x);
	if (parts & BACKWARD_INPUT) {
		op_gemm(l->env->dev, &(struct op_gemm){.out = env_partial(l->env, dx), .a = dy, .b = weight(l)});
		sum = env_reduce_begin(l->env, dx);
	}
	if (parts & BACKWARD_WEIGHT) {
		env_wait(l->env, g.there[g.chunks - 1]);
		weight_backward(l, dy, g.whole);
		if (l->bias)
			op_bias_backward(l->env->dev, &(struct op_bias_backward){.dbias = linear_dbias(l), .dout = dy});
	}
	if (parts & BACKWARD_INPUT)
		env_wait(l->env, sum);
}

void linear_row_backward(const struct linear *l, enum backward_parts parts, struct tensor dx, struct tensor dy,
			 struct tensor x)
{
	struct gathered g = env_gather_begin(l->env, dy);
	for (int i = 0; i < g.chunks; i++) {
		env_wait(l->env, g.there[i]);
		if (parts & BACKWARD_INPUT)
			op_gemm(l->env->dev, &(struct op_gemm){
				.out = env_chunk(dx, i, g.chunks), .a = env_chunk(g.whole, i, g.chunks), .b = weight(l),
			});
	}
	if (parts & BACKWARD_WEIGHT)
		weight_backward(l, g.whole, x);
}

void linear_row_gelu_backward(const struct linear *l, enum backward_parts parts, struct tensor dpre, struct tensor dy,
			      struct tensor x, struct tensor pre)
{
	struct gathered g = env_gather_begin(l->env, dy);
	for (int i = 0; i < g.chunks; i++) {
		env_wait(l->env, g.there[i]);
		if (parts & BACKWARD_INPUT)
			op_gemm(l->env->dev, &(struct op_gemm){
				.out = env_chunk(dpre, i, g.chunks), .a = env_chunk(g.whole, i, g.chunks), .b = weight(l),
				.epilogue = GEMM_DGELU, .aux = env_chunk(pre, i, g.chunks), .gelu = model_gelu(l->env->model),
			});
	}
	if (parts & BACKWARD_WEIGHT)
		weight_backward(l, g.whole, x);
}

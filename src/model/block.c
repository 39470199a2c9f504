#include "model/block.h"

#include <stdio.h>

void block_build(struct block *b, const struct env *env, struct memory *memory, int64_t layer)
{
	const struct model_settings *m = env->model;
	char name[PARAM_NAME];
	int64_t tp = env->tensor_size;

	check(m->heads % m->kv_heads == 0 && m->kv_heads % tp == 0 && m->ffn % tp == 0);
	*b = (struct block){.env = env, .layer = layer, .heads = m->heads / tp, .kv_heads = m->kv_heads / tp,
			     .swiglu = m->activation == ACTIVATION_SWIGLU};
	snprintf(name, sizeof name, "layers.%lld.norm1", (long long)layer);
	norm_build(&b->norm1, env, memory, name);
	snprintf(name, sizeof name, "layers.%lld.attention.qkv", (long long)layer);
	linear_build(&b->qkv, env, memory, m->hidden, m->qkv_bias, name);
	snprintf(name, sizeof name, "layers.%lld.attention.out", (long long)layer);
	linear_build(&b->out, env, memory, b->heads * m->head_size, m->bias, name);
	snprintf(name, sizeof name, "layers.%lld.norm2", (long long)layer);
	norm_build(&b->norm2, env, memory, name);
	snprintf(name, sizeof name, "layers.%lld.mlp.%s", (long long)layer, b->swiglu ? "gate_up" : "up");
	linear_build(&b->up, env, memory, m->hidden, m->bias, name);
	snprintf(name, sizeof name, "layers.%lld.mlp.down", (long long)layer);
	linear_build(&b->down, env, memory, m->ffn / tp, m->bias, name);
}

void block_build_scratch(struct block_scratch *s, const struct block *b, unsigned kept, bool split,
			 struct memory *memory)
{
	const struct env *env = b->env;
	int64_t C = env->model->hidden;
	*s = (struct block_scratch){
		.rows = env_rows(env, memory, MEMORY_SCRATCH, C),
		.dx1 = env_rows(env, memory, MEMORY_SCRATCH, C),
		.da = block_heads(b, memory, MEMORY_SCRATCH),
		.dqkv = block_qkv(b, memory, MEMORY_SCRATCH),
		.dpre = env_tokens(env, memory, MEMORY_SCRATCH, b->up.out),
		.delta = block_lse(b, memory, MEMORY_SCRATCH),
	};
	attention_build_scratch(&s->attention, env, memory, b->heads, b->kv_heads);
	if (b->swiglu)
		s->dg = env_tokens(env, memory, MEMORY_SCRATCH, b->down.in);
	if (env->model->dropout > 0 || split)
		s->branch = env_rows(env, memory, MEMORY_SCRATCH, C);
	block_build_again(&s->again, b, kept, memory, MEMORY_SCRATCH);
}

/* A tensor [N, …] as the matrix [N, rest]. */
static struct tensor rows(struct tensor t)
{
	return tensor_as_rows(t, t.shape[0]);
}

static struct dropout dropout_at(const struct block *b, const struct pass *pass, enum dropout_kind kind)
{
	return env_dropout(b->env, pass, b->layer, kind);
}

static struct attention attention_of(const struct block *b, const struct block_scratch *w, const struct pass *pass)
{
	return (struct attention){
		.env = b->env, .heads = b->heads, .kv_heads = b->kv_heads, .scratch = &w->attention,
		.dropout = dropout_at(b, pass, DROPOUT_ATTENTION),
	};
}

static void mlp_compute(const struct block *b, const struct block_saved *s, unsigned set)
{
	struct device *dev = b->env->dev;
	if (set & 1 << BLOCK_PRE && b->swiglu)
		linear_column_forward(&b->up, s->pre, s->n2);
	else if (set & 1 << BLOCK_PRE)
		linear_gelu_forward(&b->up, s->g, s->pre, s->n2);
	else if (set & 1 << BLOCK_G && !b->swiglu)
		op_gelu_forward(dev, &(struct op_gelu_forward){.out = s->g, .x = s->pre, .gelu = model_gelu(b->env->model)});
	if (set & 1 << BLOCK_G && b->swiglu)
		op_swiglu_forward(dev, &(struct op_swiglu_forward){.out = s->g, .x = s->pre});
}

/* w->dpre from dm, the gradient of what down gave. */
static void mlp_backward(const struct block *b, enum backward_parts parts, const struct block_saved *s,
			 const struct block_scratch *w, struct tensor dm)
{
	if (!b->swiglu) {
		linear_row_gelu_backward(&b->down, parts, w->dpre, dm, s->g, s->pre);
		return;
	}
	linear_row_backward(&b->down, parts, w->dg, dm, s->g);
	op_swiglu_backward(b->env->dev, &(struct op_swiglu_backward){.dx = w->dpre, .dout = w->dg, .x = s->pre});
}

/* Rotary positions: turns queries and keys, or their gradients back. */
static void rotate(const struct block *b, struct tensor qkv, const struct pass *pass, bool back)
{
	if (tensor_given(b->env->rope))
		op_rope(b->env->dev, &(struct op_rope){
			.qkv = qkv, .table = b->env->rope, .span = dropout_at(b, pass, DROPOUT_ATTENTION).span, .inverse = back,
		});
}

/* Computes, of the tensors between x and y, those that are in the set: what they come from is there or in it. */
static void compute(const struct block *b, const struct block_saved *s, const struct block_scratch *w, unsigned set,
		    const struct pass *pass)
{
	const struct attention attention = attention_of(b, w, pass);

	if (set & 1 << BLOCK_N1)
		norm_forward(&b->norm1, &s->norm1, s->n1, s->x);
	if (set & 1 << BLOCK_QKV) {
		linear_column_forward(&b->qkv, rows(s->qkv), s->n1);
		rotate(b, s->qkv, pass, false);
	}
	if (set & 1 << BLOCK_A)
		attention_forward(&attention, s->a, s->lse, s->qkv);
	if (set & 1 << BLOCK_X1) {
		linear_row_forward(&b->out, w->rows, rows(s->a));
		norm_residual_forward(&b->norm2, &s->norm2, s->n2, s->x1, s->x, w->rows, linear_bias(&b->out),
				      dropout_at(b, pass, DROPOUT_ATTENTION_OUT));
	} else if (set & 1 << BLOCK_N2) {
		norm_forward(&b->norm2, &s->norm2, s->n2, s->x1);
	}
	mlp_compute(b, s, set);
}

void block_forward(const struct block *b, const struct block_saved *s, const struct block_scratch *w, struct tensor y,
		   const struct pass *pass)
{
	compute(b, s, w, BLOCK_ALL, pass);
	linear_row_forward(&b->down, w->rows, s->g);
	op_residual_forward(b->env->dev, &(struct op_residual_forward){
		.sum = y, .residual = s->x1, .x = w->rows, .bias = linear_bias(&b->down),
		.dropout = dropout_at(b, pass, DROPOUT_MLP_OUT),
	});
}

/* The gradient that enters a branch behind its dropout: d itself where nothing is dropped, unless it is to be kept.
 * Adds the bias gradient. */
static struct tensor branch_backward(const struct block *b, const struct linear *l, const struct block_scratch *w,
				     struct tensor d, struct dropout dropout, bool keep)
{
	bool apart = dropout.rate > 0 || keep;
	if (apart || l->bias)
		op_residual_backward(b->env->dev, &(struct op_residual_backward){
			.dx = apart ? w->branch : (struct tensor){0}, .dbias = linear_dbias(l),
			.dsum = d, .dropout = dropout,
		});
	return apart ? w->branch : d;
}

static void swap(struct tensor *a, struct tensor *b)
{
	struct tensor t = *a;
	*a = *b;
	*b = t;
}

static void weight_backward(const struct block *b, const struct block_saved *s)
{
	struct tensor none = {0};
	linear_row_backward(&b->down, BACKWARD_WEIGHT, none, s->x1, s->g);
	linear_column_backward(&b->up, BACKWARD_WEIGHT, none, s->pre, s->n2);
	linear_row_backward(&b->out, BACKWARD_WEIGHT, none, s->x, rows(s->a));
	linear_column_backward(&b->qkv, BACKWARD_WEIGHT, none, rows(s->qkv), s->n1);
}

void block_backward(const struct block *b, enum backward_parts parts, struct block_saved *s, struct block_scratch *w,
		    struct tensor d, const struct pass *pass)
{
	const struct attention attention = attention_of(b, w, pass);
	bool split = parts == BACKWARD_INPUT;

	if (parts == BACKWARD_WEIGHT) {
		weight_backward(b, s);
		return;
	}
	dev_again(b->env->dev, true);
	compute(b, s, w, ~s->kept, pass);
	dev_again(b->env->dev, false);
	struct tensor dm = branch_backward(b, &b->down, w, d, dropout_at(b, pass, DROPOUT_MLP_OUT), split);
	mlp_backward(b, parts, s, w, dm);
	linear_column_backward(&b->up, parts, w->rows, w->dpre, s->n2);
	norm_backward(&b->norm2, &s->norm2, w->dx1, w->rows, d, s->x1);
	if (split) {
		swap(&s->pre, &w->dpre);
		swap(&s->x1, &w->branch);
	}

	struct tensor dout = branch_backward(b, &b->out, w, w->dx1, dropout_at(b, pass, DROPOUT_ATTENTION_OUT), split);
	linear_row_backward(&b->out, parts, rows(w->da), dout, rows(s->a));
	attention_backward(&attention, w->dqkv, w->delta, w->da, s->a, s->lse, s->qkv);
	rotate(b, w->dqkv, pass, true);
	linear_column_backward(&b->qkv, parts, w->rows, rows(w->dqkv), s->n1);
	norm_backward(&b->norm1, &s->norm1, d, w->rows, w->dx1, s->x);
	if (split) {
		swap(&s->qkv, &w->dqkv);
		swap(&s->x, &w->branch);
	}
}

#include "model/block_saved.h"

#include "model/block.h"

struct tensor block_qkv(const struct block *b, struct memory *memory, enum memory_kind kind)
{
	const struct model_settings *m = b->env->model;
	int64_t shape[] = {b->env->tokens, b->kv_heads, b->heads / b->kv_heads + 2, m->head_size};
	return arena_tensor(&memory->arena[kind], b->env->dtype, 4, shape);
}

struct tensor block_heads(const struct block *b, struct memory *memory, enum memory_kind kind)
{
	int64_t shape[] = {b->env->tokens, b->heads, b->env->model->head_size};
	return arena_tensor(&memory->arena[kind], b->env->dtype, 3, shape);
}

struct tensor block_lse(const struct block *b, struct memory *memory, enum memory_kind kind)
{
	int64_t shape[] = {b->env->batch, b->heads, b->env->length};
	return arena_tensor(&memory->arena[kind], dtype_sum(b->env->dtype), 3, shape);
}

/* One of the tensors, with the statistics that go with it. */
static void take(struct block_saved *s, const struct block *b, enum block_tensor which, struct memory *memory,
		 enum memory_kind kind)
{
	const struct env *env = b->env;
	int64_t C = env->model->hidden;
	switch (which) {
	case BLOCK_X:
		s->x = env_rows(env, memory, kind, C);
		break;
	case BLOCK_N1:
		s->n1 = env_rows(env, memory, kind, C);
		norm_build_saved(&s->norm1, env, memory, kind);
		break;
	case BLOCK_QKV:
		s->qkv = block_qkv(b, memory, kind);
		break;
	case BLOCK_A:
		s->a = block_heads(b, memory, kind);
		s->lse = block_lse(b, memory, kind);
		break;
	case BLOCK_X1:
		s->x1 = env_rows(env, memory, kind, C);
		break;
	case BLOCK_N2:
		s->n2 = env_rows(env, memory, kind, C);
		norm_build_saved(&s->norm2, env, memory, kind);
		break;
	case BLOCK_PRE:
		s->pre = env_tokens(env, memory, kind, b->up.out);
		break;
	default:
		s->g = env_tokens(env, memory, kind, b->down.in);
		break;
	}
}

/* All but x that are in `which`. */
static void take_set(struct block_saved *s, const struct block *b, unsigned which, struct memory *memory,
		     enum memory_kind kind)
{
	for (int i = BLOCK_X + 1; i < BLOCK_TENSORS; i++)
		if (which >> i & 1)
			take(s, b, (enum block_tensor)i, memory, kind);
}

void block_build_saved(struct block_saved *s, const struct block *b, unsigned kept, const struct block_saved *again,
		       struct memory *memory)
{
	*s = *again;
	s->kept = kept;
	take_set(s, b, kept, memory, MEMORY_ACTIVATIONS);
}

void block_build_again(struct block_saved *again, const struct block *b, unsigned kept, struct memory *memory,
		       enum memory_kind kind)
{
	*again = (struct block_saved){0};
	take_set(again, b, ~kept, memory, kind);
}

/* The tensors of the set, with the statistics that go with them. */
static void copy_set(struct block_saved *to, const struct block_saved *from, unsigned which)
{
	if (which & 1 << BLOCK_N1) {
		to->n1 = from->n1;
		to->norm1 = from->norm1;
	}
	if (which & 1 << BLOCK_QKV)
		to->qkv = from->qkv;
	if (which & 1 << BLOCK_A) {
		to->a = from->a;
		to->lse = from->lse;
	}
	if (which & 1 << BLOCK_X1)
		to->x1 = from->x1;
	if (which & 1 << BLOCK_N2) {
		to->n2 = from->n2;
		to->norm2 = from->norm2;
	}
	if (which & 1 << BLOCK_PRE)
		to->pre = from->pre;
	if (which & 1 << BLOCK_G)
		to->g = from->g;
}

void block_saved_lend(struct block_saved *s, const struct block_saved *own)
{
	copy_set(s, own, ~s->kept);
}

void block_saved_return(struct block_saved *s, struct block_saved *own, const struct block_saved *again)
{
	copy_set(own, s, ~s->kept);
	copy_set(s, again, ~s->kept);
}

static void count(struct block_row *row, struct op_cost cost)
{
	row->flops += cost.flops;
	row->traffic += cost.bytes;
}

static struct op_cost norm_cost(const struct norm *n, const struct norm_saved *saved, struct tensor out, struct tensor x)
{
	return op_cost_norm_forward(&(struct op_norm_forward){
		.out = out, .mean = saved->mean, .rstd = saved->rstd, .x = x, .weight = n->weight->weight,
		.bias = n->bias ? n->bias->weight : (struct tensor){0},
	});
}

/* y [N, out] = x·Wᵀ + bias, in so many chunks of the N rows (linear.h). */
static void count_product(struct block_row *row, const struct linear *l, struct tensor bias, int chunks)
{
	int64_t N = l->env->tokens / chunks;
	for (int i = 0; i < chunks; i++)
		count(row, op_cost_gemm(&(struct op_gemm){
			.out = tensor_of(NULL, l->env->dtype, 2, (int64_t[]){N, l->out}),
			.a = tensor_of(NULL, l->env->dtype, 2, (int64_t[]){N, l->in}),
			.b = l->weight->weight, .b_transposed = true, .bias = bias,
		}));
}

/* What the ops that compute each tensor again take, by the book's own counts. */
static void count_ops(struct block_row rows[BLOCK_TENSORS], const struct block *b, const struct block_saved *s)
{
	const struct env *env = b->env;
	int gathered = env->sequence ? env->chunks : 1;

	count(&rows[BLOCK_N1], norm_cost(&b->norm1, &s->norm1, s->n1, s->x));
	count_product(&rows[BLOCK_QKV], &b->qkv, linear_bias(&b->qkv), gathered);
	if (tensor_given(env->rope))
		count(&rows[BLOCK_QKV], op_cost_rope(&(struct op_rope){.qkv = s->qkv, .table = env->rope}));
	count(&rows[BLOCK_A], attention_cost(&(struct attention){.env = env, .heads = b->heads, .kv_heads = b->kv_heads},
					     s->a, s->lse, s->qkv));
	count_product(&rows[BLOCK_X1], &b->out, (struct tensor){0}, env->chunks);
	count(&rows[BLOCK_X1], op_cost_residual_forward(&(struct op_residual_forward){
		.sum = s->x1, .residual = s->x, .x = s->x1, .bias = linear_bias(&b->out),
	}));
	count(&rows[BLOCK_N2], norm_cost(&b->norm2, &s->norm2, s->n2, s->x1));
	count_product(&rows[BLOCK_PRE], &b->up, linear_bias(&b->up), gathered);
	if (b->swiglu)
		count(&rows[BLOCK_G], op_cost_swiglu_forward(&(struct op_swiglu_forward){.out = s->g, .x = s->pre}));
	else
		count(&rows[BLOCK_G], op_cost_gelu_forward(&(struct op_gelu_forward){.out = s->g, .x = s->pre}));
}

void block_rows(struct block_row rows[BLOCK_TENSORS], const struct block *b)
{
	static const char *const names[BLOCK_TENSORS][2] = {
		[BLOCK_X] = {"x", NULL},         [BLOCK_N1] = {"n1", "norm"},     [BLOCK_QKV] = {"qkv", "product"},
		[BLOCK_A] = {"a", "attention"},  [BLOCK_X1] = {"x1", "product"},  [BLOCK_N2] = {"n2", "norm"},
		[BLOCK_PRE] = {"pre", "product"}, [BLOCK_G] = {"g", "activation"},
	};
	const struct env *env = b->env;
	double size = (double)dtype_size(env->dtype), N = (double)env->tokens, C = (double)env->model->hidden;
	struct block_saved s = {0};

	for (int i = 0; i < BLOCK_TENSORS; i++) {
		struct memory measure;
		memory_measure(&measure);
		take(&s, b, (enum block_tensor)i, &measure, MEMORY_ACTIVATIONS);
		rows[i] = (struct block_row){
			.name = names[i][0], .again = names[i][1], .bytes = measure.arena[MEMORY_ACTIVATIONS].used,
		};
	}
	count_ops(rows, b, &s);
	rows[BLOCK_A].moved = N * (double)(env->context_size - 1) * (double)(2 * b->kv_heads * env->model->head_size) * size;
	if (env->tensor_size > 1)
		rows[BLOCK_X1].moved = N * C * size;
	if (env->sequence)
		rows[BLOCK_QKV].moved = rows[BLOCK_PRE].moved = N * C * size;
}

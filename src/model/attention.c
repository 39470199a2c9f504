#include "model/attention.h"

#include <math.h>

static double scale_of(const struct env *env)
{
	return 1.0 / sqrt((double)env->model->head_size);
}

static int64_t first_head(const struct attention *at)
{
	return at->heads * at->env->tensor_rank;
}

void attention_build_scratch(struct attention_scratch *s, const struct env *env, struct memory *memory, int64_t heads,
			     int64_t kv_heads)
{
	struct arena *scratch = &memory->arena[MEMORY_SCRATCH];
	enum dtype sums = dtype_sum(env->dtype);
	const int64_t kv[] = {env->tokens, kv_heads, 2, env->model->head_size};
	const int64_t q[] = {env->tokens, heads, env->model->head_size};

	*s = (struct attention_scratch){0};
	if (env->context_size == 1)
		return;
	for (int i = 0; i < 2; i++) {
		s->kv[i] = arena_tensor(scratch, env->dtype, 4, kv);
		s->dkv[i] = arena_tensor(scratch, sums, 4, kv);
	}
	s->dkv_come = arena_tensor(scratch, sums, 4, kv);
	s->sum = arena_tensor(scratch, sums, 3, q);
}

/* A message to the next rank of the ring and one from the rank before. */
static int pass_on(const struct env *env, struct transfer *list, int count, struct tensor give, struct tensor take)
{
	int size = env->context_size, rank = env->context_rank;
	list[count] = (struct transfer){(rank + 1) % size, TRANSFER_SEND, give};
	list[count + 1] = (struct transfer){(rank + size - 1) % size, TRANSFER_RECEIVE, take};
	return count + 2;
}

/* Begun after what is computed so far; without overlap, waited for at once. */
static struct mark exchange(const struct env *env, const struct transfer *list, int count)
{
	dev_wait(env->dev, Q_CONTEXT, dev_mark(env->dev, Q_COMPUTE));
	comm_exchange(env->context, Q_CONTEXT, list, count);
	struct mark done = dev_mark(env->dev, Q_CONTEXT);
	if (!env->overlap)
		dev_wait(env->dev, Q_COMPUTE, done);
	return done;
}

/* Whose keys are here at a step. */
static struct span keys_at(const struct env *env, int step)
{
	return env_share(env, (env->context_rank + env->context_size - step) % env->context_size, 0);
}

static void load_kv(const struct attention *at, struct tensor qkv)
{
	op_heads_copy(at->env->dev, &(struct op_heads_copy){
		.to = at->scratch->kv[0], .from = qkv, .from_first = at->heads / at->kv_heads, .count = 2,
	});
}

static void ring_forward(const struct attention *at, struct tensor a, struct tensor lse, struct tensor qkv)
{
	const struct env *env = at->env;
	const struct attention_scratch *s = at->scratch;

	load_kv(at, qkv);
	for (int step = 0; step < env->context_size; step++) {
		struct tensor here = s->kv[step % 2], coming = s->kv[(step + 1) % 2];
		struct transfer list[2];
		struct mark done = {0};
		bool last = step + 1 == env->context_size;
		if (!last)
			done = exchange(env, list, pass_on(env, list, 0, here, coming));
		op_attention_part_forward(env->dev, &(struct op_attention_part_forward){
			.sum = s->sum, .lse = lse, .qkv = qkv, .kv = here, .slopes = env->slopes, .scale = scale_of(env),
			.dropout = at->dropout,
			.keys = keys_at(env, step), .first_head = first_head(at), .fresh = step == 0,
		});
		if (!last)
			dev_wait(env->dev, Q_COMPUTE, done);
	}
	op_convert(env->dev, &(struct op_convert){.to = a, .from = s->sum});
}

/* At step i the gradients of keys that came at step i − 1 follow them, and those that the ranks before have found for the
 * keys that are here come. */
static void ring_backward(const struct attention *at, struct tensor dqkv, struct tensor delta, struct tensor da,
			  struct tensor lse, struct tensor qkv)
{
	const struct env *env = at->env;
	const struct attention_scratch *s = at->scratch;
	struct transfer list[4];
	struct mark done = {0};
	int64_t per_group = at->heads / at->kv_heads;

	load_kv(at, qkv);
	dev_zero(env->dev, Q_COMPUTE, s->sum);
	for (int step = 0; step < env->context_size; step++) {
		struct tensor here = s->kv[step % 2], coming = s->kv[(step + 1) % 2], found = s->dkv[step % 2];
		int count = 0;
		if (step + 1 < env->context_size)
			count = pass_on(env, list, count, here, coming);
		if (step > 0)
			count = pass_on(env, list, count, s->dkv[(step + 1) % 2], s->dkv_come);
		done = exchange(env, list, count);
		dev_zero(env->dev, Q_COMPUTE, found);
		op_attention_part_backward(env->dev, &(struct op_attention_part_backward){
			.dq = s->sum, .dkv = found, .delta = delta, .dout = da, .lse = lse, .qkv = qkv, .kv = here,
			.slopes = env->slopes, .scale = scale_of(env), .dropout = at->dropout, .keys = keys_at(env, step),
			.first_head = first_head(at),
		});
		dev_wait(env->dev, Q_COMPUTE, done);
		if (step > 0)
			op_add(env->dev, &(struct op_add){.y = found, .x = s->dkv_come});
	}
	done = exchange(env, list, pass_on(env, list, 0, s->dkv[(env->context_size - 1) % 2], s->dkv_come));
	struct tensor dq = tensor_of(s->sum.data, s->sum.dtype, 4,
				     (int64_t[]){env->tokens, at->kv_heads, per_group, env->model->head_size});
	op_heads_copy(env->dev, &(struct op_heads_copy){.to = dqkv, .from = dq, .count = per_group});
	dev_wait(env->dev, Q_COMPUTE, done);
	op_heads_copy(env->dev, &(struct op_heads_copy){.to = dqkv, .from = s->dkv_come, .to_first = per_group, .count = 2});
}

struct op_cost attention_cost(const struct attention *at, struct tensor a, struct tensor lse, struct tensor qkv)
{
	const struct env *env = at->env;
	const int64_t kv[] = {env->tokens, at->kv_heads, 2, env->model->head_size};
	struct tensor here = tensor_of(NULL, env->dtype, 4, kv), sum = a;

	if (env->context_size == 1)
		return op_cost_attention_forward(&(struct op_attention_forward){
			.out = a, .lse = lse, .qkv = qkv, .slopes = env->slopes, .sequence = env->model->sequence,
		});
	sum.dtype = dtype_sum(env->dtype);
	struct op_cost cost = {
		.bytes = op_cost_heads_copy(&(struct op_heads_copy){.to = here, .from = qkv, .count = 2}).bytes +
			 op_cost_convert(&(struct op_convert){.to = a, .from = sum}).bytes,
	};
	for (int step = 0; step < env->context_size; step++) {
		struct op_cost part = op_cost_attention_part_forward(&(struct op_attention_part_forward){
			.sum = sum, .lse = lse, .qkv = qkv, .kv = here, .slopes = env->slopes, .keys = keys_at(env, step),
			.dropout.span = keys_at(env, 0), .fresh = step == 0,
		});
		cost.flops += part.flops;
		cost.bytes += part.bytes;
	}
	return cost;
}

void attention_forward(const struct attention *at, struct tensor a, struct tensor lse, struct tensor qkv)
{
	const struct env *env = at->env;
	if (env->context_size > 1) {
		ring_forward(at, a, lse, qkv);
		return;
	}
	op_attention_forward(env->dev, &(struct op_attention_forward){
		.out = a, .lse = lse, .qkv = qkv, .slopes = env->slopes, .sequence = env->model->sequence, .scale = scale_of(env),
		.dropout = at->dropout, .first_head = first_head(at),
	});
}

void attention_backward(const struct attention *at, struct tensor dqkv, struct tensor delta, struct tensor da, struct tensor a,
			struct tensor lse, struct tensor qkv)
{
	const struct env *env = at->env;
	if (env->context_size > 1) {
		op_attention_delta(env->dev, &(struct op_attention_delta){.delta = delta, .dout = da, .out = a});
		ring_backward(at, dqkv, delta, da, lse, qkv);
		return;
	}
	op_attention_backward(env->dev, &(struct op_attention_backward){
		.dqkv = dqkv, .delta = delta, .dout = da, .out = a, .lse = lse, .qkv = qkv, .slopes = env->slopes,
		.sequence = env->model->sequence, .scale = scale_of(env), .dropout = at->dropout, .first_head = first_head(at),
	});
}

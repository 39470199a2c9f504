#include "dev/op_cost.h"

const char *op_name(enum op_id op)
{
#define OP_NAME(name) #name,
	static const char *const names[OP_COUNT] = {OPS(OP_NAME)};
#undef OP_NAME
	return names[op];
}

/* Bytes of tensors, those left out being none: BYTES(a->x, a->y). */
#define BYTES(...) bytes_of((struct tensor[]){__VA_ARGS__}, sizeof((struct tensor[]){__VA_ARGS__}) / sizeof(struct tensor))

static double bytes_of(const struct tensor *list, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		if (tensor_given(list[i]))
			sum += (double)tensor_bytes(list[i]);
	return sum;
}

static struct op_cost moved(double bytes)
{
	return (struct op_cost){.bytes = bytes};
}

/* One row of a table for each row of `like`, as wide. */
static double looked_up(struct tensor table, struct tensor like)
{
	if (!tensor_given(table))
		return 0;
	return (double)tensor_count(like) * (double)dtype_size(table.dtype);
}

struct op_cost op_cost_embedding_forward(const struct op_embedding_forward *a)
{
	return moved(BYTES(a->out, a->tokens) + looked_up(a->table, a->out));
}

struct op_cost op_cost_embedding_backward(const struct op_embedding_backward *a)
{
	return moved(BYTES(a->dout, a->tokens, a->order) + 2 * looked_up(a->dtable, a->dout));
}

struct op_cost op_cost_position_forward(const struct op_position_forward *a)
{
	return moved(BYTES(a->out, a->x) + looked_up(a->table, a->out));
}

struct op_cost op_cost_position_backward(const struct op_position_backward *a)
{
	return moved(BYTES(a->dout, a->dx) + 2 * looked_up(a->dtable, a->dout));
}

struct op_cost op_cost_norm_forward(const struct op_norm_forward *a)
{
	return moved(BYTES(a->out, a->mean, a->rstd, a->x, a->weight, a->bias));
}

struct op_cost op_cost_residual_forward(const struct op_residual_forward *a)
{
	return moved(BYTES(a->sum, a->residual, a->x, a->bias, a->out, a->mean, a->rstd, a->norm_weight, a->norm_bias));
}

struct op_cost op_cost_norm_backward(const struct op_norm_backward *a)
{
	return moved(BYTES(a->dx, a->dout, a->dresidual, a->x, a->mean, a->rstd, a->weight) +
		     2 * BYTES(a->dweight, a->dbias));
}

struct op_cost op_cost_residual_backward(const struct op_residual_backward *a)
{
	return moved(BYTES(a->dx, a->dsum) + 2 * BYTES(a->dbias));
}

struct op_cost op_cost_gemm(const struct op_gemm *a)
{
	double k = (double)a->a.shape[a->a_transposed ? 0 : 1];
	return (struct op_cost){
		.flops = 2 * (double)tensor_count(a->out) * k,
		.bytes = BYTES(a->a, a->b, a->bias, a->aux) + (a->accumulate ? 2 : 1) * BYTES(a->out),
	};
}

struct op_cost op_cost_gelu_forward(const struct op_gelu_forward *a)
{
	return moved(BYTES(a->out, a->x));
}

struct op_cost op_cost_swiglu_forward(const struct op_swiglu_forward *a)
{
	return moved(BYTES(a->out, a->x));
}

struct op_cost op_cost_swiglu_backward(const struct op_swiglu_backward *a)
{
	return moved(BYTES(a->dx, a->dout, a->x));
}

struct op_cost op_cost_rope(const struct op_rope *a)
{
	double parts = (double)a->qkv.shape[2], rotated = (double)a->table.shape[1] / (double)a->qkv.shape[3];
	double table = (double)a->qkv.shape[0] * (double)a->table.shape[1] * (double)dtype_size(a->table.dtype);
	return moved(2 * BYTES(a->qkv) * (parts - 1) / parts * rotated + table);
}

struct op_cost op_cost_bias_backward(const struct op_bias_backward *a)
{
	return moved(BYTES(a->dout) + 2 * BYTES(a->dbias));
}

/* One product over all pairs of a query and a key that is not behind it: 2·D for each of T²/2 pairs, heads and samples. */
static double causal_product(struct tensor heads, int64_t sequence)
{
	return (double)tensor_count(heads) * (double)sequence;
}

struct op_cost op_cost_attention_forward(const struct op_attention_forward *a)
{
	return (struct op_cost){
		.flops = 2 * causal_product(a->out, a->sequence), /* scores; values */
		.bytes = BYTES(a->out, a->lse, a->qkv, a->slopes),
	};
}

struct op_cost op_cost_attention_backward(const struct op_attention_backward *a)
{
	double product = causal_product(a->dout, a->sequence);
	return (struct op_cost){
		.flops = 5 * product, /* scores again; dp', dq, dk, dv */
		.again = product,
		.bytes = BYTES(a->dqkv, a->dout, a->out, a->lse, a->qkv, a->slopes),
	};
}

/* Pairs of a query and a key that it sees, in all heads and samples, by 2·D. */
static double part_product(struct tensor qkv, const struct span *queries, const struct span *keys)
{
	double pairs = 0, samples = (double)(qkv.shape[0] / queries->length);
	for (int64_t t = 0; t < queries->length; t++)
		pairs += (double)span_before(keys, span_place(queries, t) + 1);
	/* A query and its own key are half a pair, as T²/2 counts them. */
	if (queries->first == keys->first && queries->jump == keys->jump)
		pairs -= 0.5 * (double)queries->length;
	return 2 * pairs * samples * (double)(qkv.shape[1] * (qkv.shape[2] - 2) * qkv.shape[3]);
}

struct op_cost op_cost_attention_part_forward(const struct op_attention_part_forward *a)
{
	double queries = BYTES(a->qkv) / (double)a->qkv.shape[2] * (double)(a->qkv.shape[2] - 2);
	return (struct op_cost){
		.flops = 2 * part_product(a->qkv, &a->dropout.span, &a->keys),
		.bytes = queries + BYTES(a->kv, a->slopes) + (a->fresh ? 1 : 2) * BYTES(a->sum, a->lse),
	};
}

struct op_cost op_cost_attention_part_backward(const struct op_attention_part_backward *a)
{
	double queries = BYTES(a->qkv) / (double)a->qkv.shape[2] * (double)(a->qkv.shape[2] - 2);
	double product = part_product(a->qkv, &a->dropout.span, &a->keys);
	return (struct op_cost){
		.flops = 5 * product,
		.again = product,
		.bytes = queries + BYTES(a->kv, a->delta, a->dout, a->lse, a->slopes) + 2 * BYTES(a->dq, a->dkv),
	};
}

struct op_cost op_cost_attention_delta(const struct op_attention_delta *a)
{
	return moved(BYTES(a->delta, a->dout, a->out));
}

struct op_cost op_cost_heads_copy(const struct op_heads_copy *a)
{
	double heads = (double)(a->to.shape[0] * a->to.shape[1] * a->count * a->to.shape[3]);
	return moved(heads * (double)(dtype_size(a->to.dtype) + dtype_size(a->from.dtype)));
}

struct op_cost op_cost_unit_rows_forward(const struct op_unit_rows_forward *a)
{
	return moved(BYTES(a->out, a->scale, a->x));
}

struct op_cost op_cost_unit_rows_backward(const struct op_unit_rows_backward *a)
{
	return moved(2 * BYTES(a->dx) + BYTES(a->dout, a->x, a->scale));
}

struct op_cost op_cost_loss_stats(const struct op_loss_stats *a)
{
	return moved(BYTES(a->stats, a->logits, a->targets));
}

struct op_cost op_cost_loss_combine(const struct op_loss_combine *a)
{
	return moved(BYTES(a->lse, a->losses, a->stats, a->targets));
}

struct op_cost op_cost_loss_backward(const struct op_loss_backward *a)
{
	return moved(BYTES(a->lse, a->targets) + 2 * BYTES(a->logits));
}

struct op_cost op_cost_loss_total(const struct op_loss_total *a)
{
	return moved(BYTES(a->losses, a->targets) + 2 * 2 * (double)dtype_size(a->totals.dtype));
}

struct op_cost op_cost_add(const struct op_add *a)
{
	return moved(BYTES(a->x) + 2 * BYTES(a->y));
}

struct op_cost op_cost_convert(const struct op_convert *a)
{
	return moved(BYTES(a->to, a->from));
}

struct op_cost op_cost_square_sums(const struct op_square_sums *a)
{
	double bytes = (double)a->count * sizeof(double);
	for (int64_t i = 0; i < a->count; i++)
		bytes += (double)tensor_bytes(a->grads[i]);
	return moved(bytes);
}

struct op_cost op_cost_step_verdict(const struct op_step_verdict *a)
{
	return moved(BYTES(a->totals, a->sums));
}

struct op_cost op_cost_adamw(const struct op_adamw *a)
{
	double bytes = 0;
	for (int64_t i = 0; i < a->count; i++) {
		const struct adamw_item *item = &a->items[i];
		bytes += 2 * BYTES(item->master, item->m, item->v) + BYTES(item->grad, item->weight);
	}
	return moved(bytes);
}

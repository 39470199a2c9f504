#include "dev/cost/times.h"

static const double micro = 1e-6, host_gbps = 10e9; /* pinned memory over PCIe, assumed */

static double bound(const struct hardware *h, const struct stack *s, double bytes)
{
	return hardware_stream(h, bytes) * s->memory_time + s->op_us * micro;
}

static double product(const struct hardware *h, const struct stack *s, enum dtype t, int64_t count, int64_t m, int64_t n,
		      int64_t k)
{
	return hardware_gemm(h, t, count, m, n, k) * s->product_time + s->op_us * micro;
}

/* Scores [T, T] of each head in the compute type, masks of one byte. Forward: the mask and softmax read and write them,
 * dropout reads and writes them and writes its mask; backward: dropout reads mask and gradient and writes it, softmax
 * reads its output and the gradient and writes it. The products read and write them too. */
double times_unfused(const struct hardware *h, const struct stack *s, enum dtype t, int64_t sequence, int64_t heads,
		     int64_t head_size, bool backward)
{
	double pairs = (double)sequence * (double)sequence * (double)heads, value = (double)dtype_size(t);
	double products = product(h, s, t, heads, sequence, sequence, head_size) +
			  product(h, s, t, heads, sequence, head_size, sequence);
	double dropout = bound(h, s, pairs * (2 * value + 1));
	double softmax = bound(h, s, pairs * value * (backward ? 3 : 2));
	return products * (backward ? 2 : 1) + dropout + softmax;
}

static double attention(const struct hardware *h, const struct stack *s, const struct record_item *item)
{
	bool part = item->what == OP_attention_part_forward || item->what == OP_attention_part_backward;
	bool backward = item->what == OP_attention_backward || item->what == OP_attention_part_backward;
	if (s->unfused_attention && !part)
		return times_unfused(h, s, item->dtype, item->m, item->n, item->k, backward);
	return hardware_attention(h, item->dtype, item->cost.flops, item->k, item->m, backward) * s->product_time + s->op_us * micro;
}

/* A layer's products but the last are 8·C² of its 12·C² weights where it is 4·C wide inside: what is computed again takes
 * 3/2 of that when the last one is too. */
static double repeated(const struct stack *s, const struct record_item *item)
{
	return s->whole_recompute && item->cost.again > 0 ? 1.5 : 1;
}

/* AdamW moves 30 bytes a parameter; with a copy of the 16-bit gradient to FP32 (6), unscaling (8), squares (4) and clipping (8)
 * apart from it, 56. */
static double unfused_update(const struct hardware *h, const struct stack *s, const struct record_item *item)
{
	return bound(h, s, item->cost.bytes * 56 / 30);
}

double times_op(const struct hardware *h, const struct stack *s, const struct record_item *item)
{
	if (item->kind == RECORD_COPY && (item->from_host || item->to_host))
		return item->cost.bytes / host_gbps + hardware_stream(h, 0);
	if (item->kind == RECORD_COPY)
		return hardware_stream(h, item->cost.bytes);
	if (item->what == OP_gemm)
		return product(h, s, item->dtype, 1, item->m, item->n, item->k) * repeated(s, item);
	if (item->what == OP_attention_forward || item->what == OP_attention_backward ||
	    item->what == OP_attention_part_forward || item->what == OP_attention_part_backward)
		return attention(h, s, item);
	if (item->what == OP_adamw && s->unfused_optimizer)
		return unfused_update(h, s, item);
	double measured = hardware_rate(&h->op[hardware_type(item->dtype)][item->what], item->cost.bytes);
	return measured > 0 ? item->cost.bytes / (measured * 1e9) : bound(h, s, item->cost.bytes);
}

double times_collective(const struct hardware *h, const struct stack *s, const struct record_item *item, struct hardware_group g)
{
	return hardware_collective(h, (enum hardware_move)item->what, g, item->cost.bytes) * s->communication_time;
}

double times_exchange(const struct hardware *h, const struct stack *s, bool same_node, int tensor, double bytes)
{
	if (!s->scatter_gather || tensor == 1)
		return hardware_exchange(h, same_node, bytes) * s->communication_time;
	double gather = hardware_collective(h, HARDWARE_ALL_GATHER, (struct hardware_group){tensor, tensor, 1}, bytes);
	return (hardware_exchange(h, same_node, bytes / tensor) + gather) * s->communication_time;
}

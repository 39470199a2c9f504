/* The checks of ops.c for the ops of attention. */
#include "dev/op_check.h"

/* Common to all of attention; the other tensors follow from qkv. sequence: of a sample's rows here. */
static void heads_right(const char *op, struct device *dev, struct tensor qkv, int64_t sequence, double scale,
			const struct dropout *d, int64_t first_head)
{
	op_check_float(op, "qkv", qkv);
	if (qkv.dims != 4 || qkv.shape[2] < 3)
		die(CODE_MACHINE, "%s: qkv should be [N, KV, G + 2, D] with G at least 1", op);
	if (qkv.shape[3] < 1 || qkv.shape[3] > HEAD_SIZE_MAX)
		die(CODE_MACHINE, "%s: head size %lld, should be 1 to %d", op, (long long)qkv.shape[3], HEAD_SIZE_MAX);
	if (sequence < 1 || qkv.shape[0] % sequence != 0)
		die(CODE_MACHINE, "%s: %lld rows are not whole sequences of %lld", op, (long long)qkv.shape[0],
		    (long long)sequence);
	if (!(scale > 0) || first_head < 0)
		die(CODE_MACHINE, "%s: scale %g and first head %lld should not be negative", op, scale,
		    (long long)first_head);
	op_check_dropout(op, d);
	op_check_within(op, "rows", qkv.shape[0], dev->limits.rows);
	op_check_within(op, "width", qkv.shape[1] * qkv.shape[2] * qkv.shape[3], dev->limits.width);
	op_check_within(op, "head size", qkv.shape[3], dev->limits.head_size);
}

static void attention_right(const char *op, struct device *dev, struct tensor qkv, int64_t sequence, double scale,
			    const struct dropout *d, int64_t first_head)
{
	heads_right(op, dev, qkv, sequence, scale, d, first_head);
	if (d->rate > 0 && (d->span.row != 0 || d->span.piece != 0 || d->span.first != 0 || d->span.length != sequence ||
			    d->span.jump != 0))
		die(CODE_MACHINE, "%s: the span should be whole sequences of %lld", op, (long long)sequence);
}

void op_attention_forward(struct device *dev, const struct op_attention_forward *a)
{
	attention_right(OP, dev, a->qkv, a->sequence, a->scale, &a->dropout, a->first_head);
	enum dtype type = a->qkv.dtype;
	int64_t rows = a->qkv.shape[0], groups = a->qkv.shape[1], parts = a->qkv.shape[2], size = a->qkv.shape[3];
	int64_t heads = groups * (parts - 2);
	TENSOR(qkv, type, rows, groups, parts, size);
	TENSOR(out, type, rows, heads, size);
	TENSOR(lse, dtype_sum(type), rows / a->sequence, heads, a->sequence);
	OPTIONAL(slopes, dtype_sum(type), heads);
	APART(out, a->qkv, a->slopes, a->lse);
	APART(lse, a->qkv, a->slopes);
	dev->ops->attention_forward(dev, a);
}

void op_attention_backward(struct device *dev, const struct op_attention_backward *a)
{
	attention_right(OP, dev, a->qkv, a->sequence, a->scale, &a->dropout, a->first_head);
	enum dtype type = a->qkv.dtype;
	int64_t rows = a->qkv.shape[0], groups = a->qkv.shape[1], parts = a->qkv.shape[2], size = a->qkv.shape[3];
	int64_t heads = groups * (parts - 2);
	TENSOR(qkv, type, rows, groups, parts, size);
	TENSOR(dqkv, type, rows, groups, parts, size);
	TENSOR(dout, type, rows, heads, size);
	TENSOR(out, type, rows, heads, size);
	TENSOR(lse, dtype_sum(type), rows / a->sequence, heads, a->sequence);
	TENSOR(delta, dtype_sum(type), rows / a->sequence, heads, a->sequence);
	OPTIONAL(slopes, dtype_sum(type), heads);
	APART(dqkv, a->delta, a->dout, a->out, a->lse, a->qkv, a->slopes);
	APART(delta, a->dout, a->out, a->lse, a->qkv, a->slopes);
	dev->ops->attention_backward(dev, a);
}

static void part_right(const char *op, struct device *dev, struct tensor qkv, double scale, const struct dropout *d,
		       const struct span *keys, int64_t first_head)
{
	const struct span *queries = &d->span;
	op_check_span(op, queries);
	op_check_span(op, keys);
	if (queries->row != 0 || queries->piece != 0 || keys->row != 0 || keys->piece != 0)
		die(CODE_MACHINE, "%s: the spans should be whole samples", op);
	if (queries->length != keys->length || queries->sequence != keys->sequence)
		die(CODE_MACHINE, "%s: queries are %lld of %lld tokens, keys %lld of %lld", op, (long long)queries->length,
		    (long long)queries->sequence, (long long)keys->length, (long long)keys->sequence);
	heads_right(op, dev, qkv, queries->length, scale, d, first_head);
}

void op_attention_part_forward(struct device *dev, const struct op_attention_part_forward *a)
{
	part_right(OP, dev, a->qkv, a->scale, &a->dropout, &a->keys, a->first_head);
	enum dtype type = a->qkv.dtype;
	int64_t rows = a->qkv.shape[0], groups = a->qkv.shape[1], parts = a->qkv.shape[2], size = a->qkv.shape[3];
	int64_t heads = groups * (parts - 2), length = a->keys.length;
	TENSOR(qkv, type, rows, groups, parts, size);
	TENSOR(kv, type, rows, groups, 2, size);
	TENSOR(sum, dtype_sum(type), rows, heads, size);
	TENSOR(lse, dtype_sum(type), rows / length, heads, length);
	OPTIONAL(slopes, dtype_sum(type), heads);
	APART(sum, a->qkv, a->kv, a->slopes, a->lse);
	APART(lse, a->qkv, a->kv, a->slopes);
	dev->ops->attention_part_forward(dev, a);
}

void op_attention_part_backward(struct device *dev, const struct op_attention_part_backward *a)
{
	part_right(OP, dev, a->qkv, a->scale, &a->dropout, &a->keys, a->first_head);
	enum dtype type = a->qkv.dtype;
	int64_t rows = a->qkv.shape[0], groups = a->qkv.shape[1], parts = a->qkv.shape[2], size = a->qkv.shape[3];
	int64_t heads = groups * (parts - 2), length = a->keys.length;
	TENSOR(qkv, type, rows, groups, parts, size);
	TENSOR(kv, type, rows, groups, 2, size);
	TENSOR(dq, dtype_sum(type), rows, heads, size);
	TENSOR(dkv, dtype_sum(type), rows, groups, 2, size);
	TENSOR(dout, type, rows, heads, size);
	TENSOR(lse, dtype_sum(type), rows / length, heads, length);
	TENSOR(delta, dtype_sum(type), rows / length, heads, length);
	OPTIONAL(slopes, dtype_sum(type), heads);
	APART(dq, a->dkv, a->delta, a->dout, a->lse, a->qkv, a->kv, a->slopes);
	APART(dkv, a->delta, a->dout, a->lse, a->qkv, a->kv, a->slopes);
	dev->ops->attention_part_backward(dev, a);
}

void op_attention_delta(struct device *dev, const struct op_attention_delta *a)
{
	op_check_float(OP, "dout", a->dout);
	enum dtype type = a->dout.dtype;
	int64_t rows = a->dout.shape[0], heads = a->dout.shape[1], size = a->dout.shape[2];
	int64_t batch = a->delta.shape[0], length = a->delta.shape[2];
	TENSOR(dout, type, rows, heads, size);
	TENSOR(out, type, rows, heads, size);
	TENSOR(delta, dtype_sum(type), batch, heads, length);
	HOLDS(batch * length == rows);
	APART(delta, a->dout, a->out);
	ROWS(rows);
	WIDTH(heads * size);
	dev->ops->attention_delta(dev, a);
}

void op_heads_copy(struct device *dev, const struct op_heads_copy *a)
{
	op_check_float(OP, "to", a->to);
	op_check_float(OP, "from", a->from);
	int64_t rows = a->to.shape[0], groups = a->to.shape[1], size = a->to.shape[3];
	TENSOR(to, a->to.dtype, rows, groups, a->to.shape[2], size);
	TENSOR(from, a->from.dtype, rows, groups, a->from.shape[2], size);
	HOLDS(dtype_sum(a->to.dtype) == dtype_sum(a->from.dtype));
	HOLDS(a->count >= 1 && a->to_first >= 0 && a->from_first >= 0);
	HOLDS(a->to_first + a->count <= a->to.shape[2] && a->from_first + a->count <= a->from.shape[2]);
	APART(to, a->from);
	ROWS(rows);
	WIDTH(groups * a->to.shape[2] * size);
	WIDTH(groups * a->from.shape[2] * size);
	dev->ops->heads_copy(dev, a);
}

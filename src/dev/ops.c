/* The thin layer between the model and a backend's ops: every call is checked against the book of ops, so that a
 * backend may rely on it. What is wrong here is wrong code: the run ends, with the op and the tensor named. */
#include "dev/op_check.h"

void op_embedding_forward(struct device *dev, const struct op_embedding_forward *a)
{
	op_check_float(OP, "out", a->out);
	enum dtype type = a->out.dtype;
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	TENSOR(out, type, rows, width);
	TENSOR(tokens, I32, rows);
	TENSOR(table, type, a->table.shape[0], width);
	APART(out, a->tokens, a->table);
	ROWS(rows);
	WIDTH(width);
	dev->ops->embedding_forward(dev, a);
}

void op_embedding_backward(struct device *dev, const struct op_embedding_backward *a)
{
	op_check_float(OP, "dout", a->dout);
	int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	TENSOR(dout, a->dout.dtype, rows, width);
	TENSOR(dtable, dtype_sum(a->dout.dtype), a->dtable.shape[0], width);
	TENSOR(tokens, I32, rows);
	TENSOR(order, I32, rows);
	APART(dtable, a->dout, a->tokens, a->order);
	ROWS(rows);
	WIDTH(width);
	dev->ops->embedding_backward(dev, a);
}

void op_position_forward(struct device *dev, const struct op_position_forward *a)
{
	op_check_float(OP, "out", a->out);
	enum dtype type = a->out.dtype;
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	TENSOR(out, type, rows, width);
	TENSOR(x, type, rows, width);
	OPTIONAL(table, type, a->dropout.span.sequence, width);
	if (tensor_given(a->table))
		op_check_span(OP, &a->dropout.span);
	op_check_dropout(OP, &a->dropout);
	SAME_OR_APART(out, x);
	APART(out, a->table);
	ROWS(rows);
	WIDTH(width);
	dev->ops->position_forward(dev, a);
}

void op_position_backward(struct device *dev, const struct op_position_backward *a)
{
	op_check_float(OP, "dout", a->dout);
	enum dtype type = a->dout.dtype;
	int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	TENSOR(dout, type, rows, width);
	TENSOR(dx, type, rows, width);
	OPTIONAL(dtable, dtype_sum(type), a->dropout.span.sequence, width);
	if (tensor_given(a->dtable))
		op_check_span(OP, &a->dropout.span);
	op_check_dropout(OP, &a->dropout);
	SAME_OR_APART(dx, dout);
	APART(dtable, a->dout, a->dx);
	ROWS(rows);
	WIDTH(width);
	dev->ops->position_backward(dev, a);
}

void op_norm_forward(struct device *dev, const struct op_norm_forward *a)
{
	op_check_float(OP, "out", a->out);
	enum dtype type = a->out.dtype, sums = dtype_sum(type);
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	HOLDS(a->kind == NORM_LAYER || a->kind == NORM_RMS);
	TENSOR(out, type, rows, width);
	TENSOR(x, type, rows, width);
	TENSOR(rstd, sums, rows);
	TENSOR(weight, type, width);
	OPTIONAL(mean, sums, rows);
	OPTIONAL(bias, type, width);
	HOLDS(tensor_given(a->mean) == (a->kind == NORM_LAYER));
	HOLDS(a->epsilon >= 0);
	APART(out, a->x, a->mean, a->rstd, a->weight, a->bias);
	APART(mean, a->x, a->rstd, a->weight, a->bias);
	APART(rstd, a->x, a->weight, a->bias);
	ROWS(rows);
	WIDTH(width);
	dev->ops->norm_forward(dev, a);
}

void op_residual_forward(struct device *dev, const struct op_residual_forward *a)
{
	op_check_float(OP, "sum", a->sum);
	enum dtype type = a->sum.dtype, sums = dtype_sum(type);
	int64_t rows = a->sum.shape[0], width = a->sum.shape[1];
	TENSOR(sum, type, rows, width);
	TENSOR(residual, type, rows, width);
	TENSOR(x, type, rows, width);
	OPTIONAL(bias, type, width);
	op_check_dropout(OP, &a->dropout);
	SAME_OR_APART(sum, residual);
	SAME_OR_APART(sum, x);
	APART(sum, a->bias);
	bool norm = tensor_given(a->norm_weight);
	HOLDS(tensor_given(a->out) == norm);
	HOLDS(tensor_given(a->rstd) == norm);
	HOLDS(tensor_given(a->mean) == (norm && a->kind == NORM_LAYER));
	HOLDS(norm || !tensor_given(a->norm_bias));
	if (norm) {
		HOLDS(a->kind == NORM_LAYER || a->kind == NORM_RMS);
		HOLDS(a->epsilon >= 0);
		TENSOR(out, type, rows, width);
		TENSOR(rstd, sums, rows);
		OPTIONAL(mean, sums, rows);
		TENSOR(norm_weight, type, width);
		OPTIONAL(norm_bias, type, width);
		APART(out, a->sum, a->residual, a->x, a->bias, a->mean, a->rstd, a->norm_weight, a->norm_bias);
		APART(rstd, a->sum, a->residual, a->x, a->bias, a->mean, a->norm_weight, a->norm_bias);
		APART(mean, a->sum, a->residual, a->x, a->bias, a->norm_weight, a->norm_bias);
		APART(sum, a->norm_weight, a->norm_bias);
	}
	ROWS(rows);
	WIDTH(width);
	dev->ops->residual_forward(dev, a);
}

void op_norm_backward(struct device *dev, const struct op_norm_backward *a)
{
	op_check_float(OP, "dx", a->dx);
	enum dtype type = a->dx.dtype, sums = dtype_sum(type);
	int64_t rows = a->dx.shape[0], width = a->dx.shape[1];
	HOLDS(a->kind == NORM_LAYER || a->kind == NORM_RMS);
	TENSOR(dx, type, rows, width);
	TENSOR(dout, type, rows, width);
	TENSOR(x, type, rows, width);
	OPTIONAL(dresidual, type, rows, width);
	TENSOR(rstd, sums, rows);
	OPTIONAL(mean, sums, rows);
	HOLDS(tensor_given(a->mean) == (a->kind == NORM_LAYER));
	TENSOR(weight, type, width);
	TENSOR(dweight, sums, width);
	OPTIONAL(dbias, sums, width);
	SAME_OR_APART(dx, dresidual);
	APART(dx, a->dout, a->x, a->mean, a->rstd, a->weight, a->dweight, a->dbias);
	APART(dweight, a->dout, a->dresidual, a->x, a->mean, a->rstd, a->weight, a->dbias);
	APART(dbias, a->dout, a->dresidual, a->x, a->mean, a->rstd, a->weight);
	ROWS(rows);
	WIDTH(width);
	dev->ops->norm_backward(dev, a);
}

void op_residual_backward(struct device *dev, const struct op_residual_backward *a)
{
	op_check_float(OP, "dsum", a->dsum);
	enum dtype type = a->dsum.dtype;
	int64_t rows = a->dsum.shape[0], width = a->dsum.shape[1];
	TENSOR(dsum, type, rows, width);
	OPTIONAL(dx, type, rows, width);
	OPTIONAL(dbias, dtype_sum(type), width);
	op_check_dropout(OP, &a->dropout);
	HOLDS(tensor_given(a->dx) || a->dropout.rate == 0);
	SAME_OR_APART(dx, dsum);
	APART(dbias, a->dsum, a->dx);
	ROWS(rows);
	WIDTH(width);
	dev->ops->residual_backward(dev, a);
}

void op_gemm(struct device *dev, const struct op_gemm *a)
{
	op_check_float(OP, "a", a->a);
	enum dtype type = a->a.dtype;
	int64_t m = a->a.shape[a->a_transposed], k = a->a.shape[!a->a_transposed], n = a->b.shape[!a->b_transposed];
	int64_t most = dev->limits.rows > dev->limits.width ? dev->limits.rows : dev->limits.width;
	if (a->a_transposed)
		TENSOR(a, type, k, m);
	else
		TENSOR(a, type, m, k);
	if (a->b_transposed)
		TENSOR(b, type, n, k);
	else
		TENSOR(b, type, k, n);
	TENSOR(out, a->accumulate ? dtype_sum(type) : type, m, n);
	OPTIONAL(bias, type, n);
	OPTIONAL(aux, type, m, n);
	HOLDS(a->epilogue >= GEMM_PLAIN && a->epilogue <= GEMM_DGELU);
	HOLDS(!a->accumulate || a->epilogue == GEMM_PLAIN);
	HOLDS(tensor_given(a->bias) ? a->epilogue == GEMM_BIAS || a->epilogue == GEMM_BIAS_GELU : a->epilogue != GEMM_BIAS);
	HOLDS(tensor_given(a->aux) == (a->epilogue == GEMM_BIAS_GELU || a->epilogue == GEMM_DGELU));
	HOLDS(a->gelu == GELU_TANH || a->gelu == GELU_ERF);
	APART(out, a->a, a->b, a->bias, a->aux);
	if (a->epilogue == GEMM_BIAS_GELU)
		APART(aux, a->a, a->b, a->bias);
	op_check_within(OP, "rows of the product", m, most);
	op_check_within(OP, "columns of the product", n, most);
	op_check_within(OP, "elements of an inner sum", k, most);
	dev->ops->gemm(dev, a);
}

void op_gelu_forward(struct device *dev, const struct op_gelu_forward *a)
{
	op_check_float(OP, "out", a->out);
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	TENSOR(out, a->out.dtype, rows, width);
	TENSOR(x, a->out.dtype, rows, width);
	HOLDS(a->gelu == GELU_TANH || a->gelu == GELU_ERF);
	APART(out, a->x);
	ROWS(rows);
	WIDTH(width);
	dev->ops->gelu_forward(dev, a);
}

void op_swiglu_forward(struct device *dev, const struct op_swiglu_forward *a)
{
	op_check_float(OP, "out", a->out);
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	TENSOR(out, a->out.dtype, rows, width);
	TENSOR(x, a->out.dtype, rows, 2 * width);
	APART(out, a->x);
	ROWS(rows);
	WIDTH(2 * width);
	dev->ops->swiglu_forward(dev, a);
}

void op_swiglu_backward(struct device *dev, const struct op_swiglu_backward *a)
{
	op_check_float(OP, "dout", a->dout);
	int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	TENSOR(dout, a->dout.dtype, rows, width);
	TENSOR(dx, a->dout.dtype, rows, 2 * width);
	TENSOR(x, a->dout.dtype, rows, 2 * width);
	APART(dx, a->dout, a->x);
	ROWS(rows);
	WIDTH(2 * width);
	dev->ops->swiglu_backward(dev, a);
}

void op_rope(struct device *dev, const struct op_rope *a)
{
	op_check_float(OP, "qkv", a->qkv);
	enum dtype type = a->qkv.dtype;
	int64_t rows = a->qkv.shape[0], groups = a->qkv.shape[1], parts = a->qkv.shape[2], size = a->qkv.shape[3];
	int64_t width = a->table.shape[1];
	TENSOR(qkv, type, rows, groups, parts, size);
	HOLDS(parts >= 3);
	HOLDS(width >= 2 && width % 2 == 0 && width <= size);
	op_check_span(OP, &a->span);
	TENSOR(table, dtype_sum(type), a->span.sequence, width);
	APART(qkv, a->table);
	ROWS(rows);
	WIDTH(groups * parts * size);
	dev->ops->rope(dev, a);
}

void op_bias_backward(struct device *dev, const struct op_bias_backward *a)
{
	op_check_float(OP, "dout", a->dout);
	int64_t rows = a->dout.shape[0], width = a->dout.shape[1];
	TENSOR(dout, a->dout.dtype, rows, width);
	TENSOR(dbias, dtype_sum(a->dout.dtype), width);
	APART(dbias, a->dout);
	ROWS(rows);
	WIDTH(width);
	dev->ops->bias_backward(dev, a);
}

void op_unit_rows_forward(struct device *dev, const struct op_unit_rows_forward *a)
{
	op_check_float(OP, "out", a->out);
	int64_t rows = a->out.shape[0], width = a->out.shape[1];
	TENSOR(out, a->out.dtype, rows, width);
	TENSOR(x, a->out.dtype, rows, width);
	TENSOR(scale, dtype_sum(a->out.dtype), rows);
	APART(out, a->x, a->scale);
	APART(scale, a->x);
	WIDTH(width);
	dev->ops->unit_rows_forward(dev, a);
}

void op_unit_rows_backward(struct device *dev, const struct op_unit_rows_backward *a)
{
	op_check_float(OP, "x", a->x);
	enum dtype sums = dtype_sum(a->x.dtype);
	int64_t rows = a->x.shape[0], width = a->x.shape[1];
	TENSOR(x, a->x.dtype, rows, width);
	TENSOR(dx, sums, rows, width);
	TENSOR(dout, sums, rows, width);
	TENSOR(scale, sums, rows);
	APART(dx, a->dout, a->x, a->scale);
	WIDTH(width);
	dev->ops->unit_rows_backward(dev, a);
}

void op_loss_stats(struct device *dev, const struct op_loss_stats *a)
{
	op_check_float(OP, "logits", a->logits);
	int64_t rows = a->logits.shape[0], columns = a->logits.shape[1];
	TENSOR(logits, a->logits.dtype, rows, columns);
	TENSOR(stats, dtype_sum(a->logits.dtype), rows, 3);
	TENSOR(targets, I32, rows);
	HOLDS(a->first >= 0 && a->valid >= 0 && a->valid <= columns);
	APART(stats, a->logits, a->targets);
	ROWS(rows);
	WIDTH(columns);
	dev->ops->loss_stats(dev, a);
}

void op_loss_combine(struct device *dev, const struct op_loss_combine *a)
{
	op_check_float(OP, "stats", a->stats);
	enum dtype sums = dtype_sum(a->stats.dtype);
	int64_t ranks = a->stats.shape[0], rows = a->stats.shape[1];
	HOLDS(ranks >= 1);
	TENSOR(stats, sums, ranks, rows, 3);
	TENSOR(lse, sums, rows);
	TENSOR(losses, sums, rows);
	TENSOR(targets, I32, rows);
	APART(lse, a->losses, a->stats, a->targets);
	APART(losses, a->stats, a->targets);
	ROWS(rows);
	dev->ops->loss_combine(dev, a);
}

void op_loss_backward(struct device *dev, const struct op_loss_backward *a)
{
	op_check_float(OP, "logits", a->logits);
	int64_t rows = a->logits.shape[0], columns = a->logits.shape[1];
	TENSOR(logits, a->logits.dtype, rows, columns);
	TENSOR(lse, dtype_sum(a->logits.dtype), rows);
	TENSOR(targets, I32, rows);
	HOLDS(a->first >= 0 && a->valid >= 0 && a->valid <= columns);
	HOLDS(a->sequence >= 1);
	APART(logits, a->lse, a->targets);
	ROWS(rows);
	WIDTH(columns);
	dev->ops->loss_backward(dev, a);
}

void op_loss_total(struct device *dev, const struct op_loss_total *a)
{
	op_check_float(OP, "losses", a->losses);
	int64_t rows = a->losses.shape[0];
	HOLDS(a->totals.shape[0] >= 2);
	TENSOR(totals, F64, a->totals.shape[0]);
	TENSOR(losses, dtype_sum(a->losses.dtype), rows);
	TENSOR(targets, I32, rows);
	APART(totals, a->losses, a->targets);
	ROWS(rows);
	dev->ops->loss_total(dev, a);
}

/* Elementwise ops take any shape: only equality matters. */
static void alike(const char *op, const char *name, struct tensor t, enum dtype type, struct tensor other)
{
	op_check_float(op, name, t);
	op_check_tensor(op, name, t, type, other.dims, other.shape);
}

void op_add(struct device *dev, const struct op_add *a)
{
	alike(OP, "y", a->y, a->y.dtype, a->y);
	alike(OP, "x", a->x, a->y.dtype, a->y);
	APART(y, a->x);
	dev->ops->add(dev, a);
}

void op_convert(struct device *dev, const struct op_convert *a)
{
	alike(OP, "to", a->to, a->to.dtype, a->to);
	alike(OP, "from", a->from, a->from.dtype, a->to);
	APART(to, a->from);
	dev->ops->convert(dev, a);
}

static void rules_right(const char *op, const struct step_rules *r)
{
	if (!(r->beta1 >= 0 && r->beta1 < 1 && r->beta2 >= 0 && r->beta2 < 1 && r->epsilon >= 0))
		die(CODE_MACHINE, "%s: beta1 %g, beta2 %g or epsilon %g out of range", op, r->beta1, r->beta2, r->epsilon);
	if (r->sequence < 1 || r->global_batch < 1 || !(r->scale_min > 0))
		die(CODE_MACHINE, "%s: sequence, global batch and the least scale should be positive", op);
}

void op_square_sums(struct device *dev, const struct op_square_sums *a)
{
	TENSOR(sums, F64, a->sums.shape[0]);
	HOLDS(a->count >= 0);
	op_check_within(OP, "tensors", a->count, dev->limits.tensors);
	for (int64_t i = 0; i < a->count; i++) {
		alike(OP, "a gradient", a->grads[i], dtype_sum(a->grads[0].dtype), a->grads[i]);
		HOLDS(a->slots[i] >= 0 && a->slots[i] < a->sums.shape[0]);
		APART(sums, a->grads[i]);
	}
	dev->ops->square_sums(dev, a);
}

void op_step_verdict(struct device *dev, const struct op_step_verdict *a)
{
	HOLDS(a->totals.shape[0] >= 2);
	TENSOR(totals, F64, a->totals.shape[0]);
	TENSOR(sums, F64, a->sums.shape[0]);
	rules_right(OP, &a->rules);
	dev->ops->step_verdict(dev, a);
}

void op_adamw(struct device *dev, const struct op_adamw *a)
{
	HOLDS(a->count >= 0);
	op_check_within(OP, "tensors", a->count, dev->limits.tensors);
	rules_right(OP, &a->rules);
	for (int64_t i = 0; i < a->count; i++) {
		const struct adamw_item *item = &a->items[i];
		enum dtype sums = dtype_sum(a->items[0].master.dtype);
		alike(OP, "master", item->master, sums, item->master);
		alike(OP, "m", item->m, sums, item->master);
		alike(OP, "v", item->v, sums, item->master);
		alike(OP, "grad", item->grad, sums, item->master);
		if (tensor_given(item->weight)) {
			alike(OP, "weight", item->weight, item->weight.dtype, item->master);
			HOLDS(dtype_sum(item->weight.dtype) == sums);
		}
		APART(items[i].master, item->m, item->v, item->grad, item->weight);
		APART(items[i].m, item->v, item->grad, item->weight);
		APART(items[i].v, item->grad, item->weight);
		APART(items[i].weight, item->grad);
	}
	dev->ops->adamw(dev, a);
}

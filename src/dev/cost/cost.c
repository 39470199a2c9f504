#include "dev/cost/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cost {
	struct record record;
	uintptr_t next; /* address that the next memory gets */
	cost_workspace *workspace;
	void *context; /* its */
	struct scalars scalars;
};

/* Addresses begin where no process has memory, and pages stand apart. */
#define FIRST_ADDRESS ((uintptr_t)1 << 56)
enum { PAGE = 4096 };

static struct cost *cost_of(const struct device *dev)
{
	return dev->impl;
}

struct record *cost_record(const struct device *dev)
{
	return &cost_of(dev)->record;
}

void cost_forget(struct device *dev)
{
	struct record *r = cost_record(dev), fresh;
	record_init(&fresh);
	memcpy(fresh.queued, r->queued, sizeof fresh.queued);
	record_finish(r);
	*r = fresh;
}

struct record cost_take_record(struct device *dev)
{
	struct record taken = *cost_record(dev);
	record_init(cost_record(dev));
	return taken;
}

void cost_set_workspace(struct device *dev, cost_workspace *workspace, void *context)
{
	cost_of(dev)->workspace = workspace;
	cost_of(dev)->context = context;
}

static void count(struct device *dev, enum op_id op, struct op_cost cost, enum dtype dtype, const int64_t shape[3])
{
	if (dev->again)
		cost.again = cost.flops;
	record_add(cost_record(dev), &(struct record_item){
		.kind = RECORD_OP, .queue = Q_COMPUTE, .what = op, .name = op_name(op), .cost = cost, .dtype = dtype,
		.m = shape ? shape[0] : 0, .n = shape ? shape[1] : 0, .k = shape ? shape[2] : 0,
	});
}

#define NO_SHAPE(name, tensor)                                                   \
	static void count_##name(struct device *dev, const struct op_##name *a)  \
	{                                                                        \
		count(dev, OP_##name, op_cost_##name(a), (tensor).dtype, NULL);  \
	}
NO_SHAPE(embedding_forward, a->out)
NO_SHAPE(embedding_backward, a->dout)
NO_SHAPE(position_forward, a->out)
NO_SHAPE(position_backward, a->dout)
NO_SHAPE(norm_forward, a->out)
NO_SHAPE(residual_forward, a->sum)
NO_SHAPE(norm_backward, a->dx)
NO_SHAPE(residual_backward, a->dsum)
NO_SHAPE(gelu_forward, a->out)
NO_SHAPE(bias_backward, a->dout)
NO_SHAPE(swiglu_forward, a->out)
NO_SHAPE(swiglu_backward, a->dout)
NO_SHAPE(rope, a->qkv)
NO_SHAPE(unit_rows_forward, a->x)
NO_SHAPE(unit_rows_backward, a->x)
NO_SHAPE(attention_delta, a->dout)
NO_SHAPE(heads_copy, a->to)
NO_SHAPE(loss_stats, a->logits)
NO_SHAPE(loss_combine, a->lse)
NO_SHAPE(loss_backward, a->logits)
NO_SHAPE(loss_total, a->losses)
NO_SHAPE(add, a->y)
NO_SHAPE(convert, a->to)
NO_SHAPE(square_sums, a->sums)
NO_SHAPE(step_verdict, a->sums)

static void count_gemm(struct device *dev, const struct op_gemm *a)
{
	int64_t k = a->a.shape[a->a_transposed ? 0 : 1];
	count(dev, OP_gemm, op_cost_gemm(a), a->a.dtype, (int64_t[]){a->out.shape[0], a->out.shape[1], k});
}

/* lse is [B, H, T], heads [N, H, D]. */
static void count_heads(struct device *dev, enum op_id op, struct op_cost cost, struct tensor heads, struct tensor lse)
{
	count(dev, op, cost, heads.dtype, (int64_t[]){lse.shape[2], lse.shape[0] * lse.shape[1], heads.shape[2]});
}

static void count_attention_forward(struct device *dev, const struct op_attention_forward *a)
{
	count_heads(dev, OP_attention_forward, op_cost_attention_forward(a), a->out, a->lse);
}

static void count_attention_backward(struct device *dev, const struct op_attention_backward *a)
{
	count_heads(dev, OP_attention_backward, op_cost_attention_backward(a), a->dout, a->lse);
}

static void count_attention_part_forward(struct device *dev, const struct op_attention_part_forward *a)
{
	struct tensor heads = a->sum;
	heads.dtype = a->qkv.dtype;
	count_heads(dev, OP_attention_part_forward, op_cost_attention_part_forward(a), heads, a->lse);
}

static void count_attention_part_backward(struct device *dev, const struct op_attention_part_backward *a)
{
	count_heads(dev, OP_attention_part_backward, op_cost_attention_part_backward(a), a->dout, a->lse);
}

static void count_adamw(struct device *dev, const struct op_adamw *a)
{
	count(dev, OP_adamw, op_cost_adamw(a), a->count > 0 ? a->items[0].master.dtype : F32, NULL);
}

#define OP_ENTRY(name) .name = count_##name,
static const struct ops ops_cost = {OPS(OP_ENTRY)};
#undef OP_ENTRY

static bool cost_open(struct device *dev, const struct dev_options *options, struct error *e)
{
	struct cost *c = calloc(1, sizeof *c);
	if (!c)
		return error_set(e, CODE_MACHINE, "out of memory");
	record_init(&c->record);
	c->next = FIRST_ADDRESS;
	c->scalars = (struct scalars){.loss_scale = 1, .first_bad = -1, .grad_norm = 1, .used_scale = 1};
	dev->impl = c;
	dev->ops = &ops_cost;
	dev->scalars = &c->scalars;
	snprintf(dev->text, sizeof dev->text, "counting");
	return true;
}

static bool cost_reserve(struct device *dev, const struct dev_limits *limits, struct error *e)
{
	const struct cost *c = cost_of(dev);
	dev->workspace = c->workspace ? c->workspace(c->context, limits) : 0;
	return true;
}

static void cost_close(struct device *dev)
{
	record_finish(cost_record(dev));
	free(dev->impl);
}

static void *cost_take(struct device *dev, size_t bytes)
{
	struct cost *c = cost_of(dev);
	uintptr_t at = c->next;
	c->next += (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
	return (void *)at; /* NOLINT: an address that is never touched */
}

static void cost_give_back(struct device *dev, void *memory)
{
}

/* What the host reads and writes itself is real. */
static void *cost_take_host(struct device *dev, size_t bytes)
{
	return calloc(1, bytes);
}

static void cost_give_back_host(struct device *dev, void *memory)
{
	free(memory);
}

static double cost_peak_flops(const struct device *dev, enum dtype compute)
{
	return 0;
}

static struct mark cost_mark(struct device *dev, enum queue q)
{
	return (struct mark){.queue = q, .count = cost_record(dev)->queued[q]};
}

static void cost_wait(struct device *dev, enum queue q, struct mark m)
{
	record_wait(cost_record(dev), q, m);
}

static void cost_finish(struct device *dev, struct mark m)
{
	record_host_waits(cost_record(dev), m);
}

static void copied(struct device *dev, enum queue q, const char *name, size_t read, size_t written, bool from_host,
		   bool to_host)
{
	record_add(cost_record(dev), &(struct record_item){
		.kind = RECORD_COPY, .queue = q, .name = name, .cost = {.bytes = (double)read + (double)written},
		.dtype = U8, .from_host = from_host, .to_host = to_host,
	});
}

static void cost_write(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	if (to == dev->scalars)
		memcpy(to, from, bytes);
	copied(dev, q, "write", 0, bytes, true, false);
}

static void cost_read(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	if (from == dev->scalars)
		memcpy(to, from, bytes);
	else
		memset(to, 0, bytes);
	copied(dev, q, "read", bytes, 0, false, true);
}

static void cost_copy(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	copied(dev, q, "copy", bytes, bytes, false, false);
}

static void cost_zero(struct device *dev, enum queue q, void *to, size_t bytes)
{
	copied(dev, q, "zero", 0, bytes, false, false);
}

static bool cost_begin(struct device *dev, const struct stretch *s)
{
	return record_begin(cost_record(dev), s);
}

static void cost_end(struct device *dev)
{
	record_end(cost_record(dev));
}

static void cost_post(struct device *dev, enum queue q, struct work *w)
{
	die(CODE_MACHINE, "%s in group %s: a counting device carries nothing out", w->call, w->group);
}

/* There is nothing to choose. */
static bool cost_rehearse(struct device *dev, bool on)
{
	return false;
}

static void cost_choose(struct device *dev, struct tuning *own, bool timed)
{
}

static void cost_told(struct device *dev, const struct tuning *choices)
{
}

const struct backend backend_cost = {
	.counts = true,
	.name = "cost",
	.open = cost_open,
	.reserve = cost_reserve,
	.close = cost_close,
	.take = cost_take,
	.give_back = cost_give_back,
	.take_host = cost_take_host,
	.give_back_host = cost_give_back_host,
	.peak_flops = cost_peak_flops,
	.mark = cost_mark,
	.wait = cost_wait,
	.finish = cost_finish,
	.write = cost_write,
	.read = cost_read,
	.copy = cost_copy,
	.zero = cost_zero,
	.begin = cost_begin,
	.end = cost_end,
	.post = cost_post,
	.rehearse = cost_rehearse,
	.choose = cost_choose,
	.told = cost_told,
};

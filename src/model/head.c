#include "model/head.h"

/* Logits of a block hold at most this many elements: large enough to keep a matrix product busy, small enough to be
 * nothing beside the weights. */
enum { HEAD_ELEMENTS = 1 << 24, HEAD_ROWS_MULTIPLE = 64 };

static int64_t block_rows(int64_t tokens, int64_t columns)
{
	int64_t rows = HEAD_ELEMENTS / columns / HEAD_ROWS_MULTIPLE * HEAD_ROWS_MULTIPLE;
	if (rows < HEAD_ROWS_MULTIPLE)
		rows = HEAD_ROWS_MULTIPLE;
	return rows < tokens ? rows : tokens;
}

static void unit_build(struct head *h, struct memory *memory)
{
	struct arena *scratch = &memory->arena[MEMORY_SCRATCH];
	int64_t rows = h->weight->weight.shape[0], C = h->env->model->hidden;
	enum dtype sum = dtype_sum(h->env->dtype);
	h->unit = arena_2d(scratch, h->env->dtype, rows, C);
	h->scale = arena_1d(scratch, sum, rows);
	if (!h->env->params->frozen)
		h->dunit = arena_2d(scratch, sum, rows, C);
}

void head_build(struct head *h, const struct env *env, struct memory *memory, struct param *token)
{
	const struct model_settings *m = env->model;
	enum dtype sum = dtype_sum(env->dtype);
	struct arena *scratch = &memory->arena[MEMORY_SCRATCH];

	*h = (struct head){.env = env};
	norm_build(&h->norm, env, memory, "norm");
	if (!m->tied)
		h->weight = param_use(env->params, memory, false, "head.weight");
	else
		h->weight = token ? token : param_use(env->params, memory, true, "embedding.token.weight");
	int64_t columns = h->weight->weight.shape[0];
	h->first = columns * env->tensor_rank;
	h->valid = h->weight->box.end[0] - h->weight->box.begin[0];
	h->block = block_rows(env->tokens, columns);

	if (m->normalized_head)
		unit_build(h, memory);
	norm_build_saved(&h->saved, env, memory, MEMORY_SCRATCH);
	h->normed = env_rows(env, memory, MEMORY_SCRATCH, m->hidden);
	h->dnormed = env_rows(env, memory, MEMORY_SCRATCH, m->hidden);
	h->logits = arena_2d(scratch, env->dtype, h->block, columns);
	h->stats = arena_tensor(scratch, sum, 3, (int64_t[]){env->tensor_size, h->block, 3});
	h->lse = arena_1d(scratch, sum, h->block);
	h->losses = arena_1d(scratch, sum, env->tokens);
}

/* The matrix of the logits' product, and where its gradient is summed. */
static struct tensor matrix(const struct head *h)
{
	return h->env->model->normalized_head ? h->unit : h->weight->weight;
}

static struct tensor dmatrix(const struct head *h)
{
	return h->env->model->normalized_head ? h->dunit : h->weight->grad;
}

static void unit_forward(const struct head *h, bool training)
{
	if (!h->env->model->normalized_head)
		return;
	op_unit_rows_forward(h->env->dev, &(struct op_unit_rows_forward){
		.out = h->unit, .scale = h->scale, .x = h->weight->weight,
	});
	if (training)
		dev_zero(h->env->dev, Q_COMPUTE, h->dunit);
}

static void unit_backward(const struct head *h)
{
	if (h->env->model->normalized_head)
		op_unit_rows_backward(h->env->dev, &(struct op_unit_rows_backward){
			.dx = h->weight->grad, .dout = h->dunit, .x = h->weight->weight, .scale = h->scale,
		});
}

static void logits_forward(const struct head *h, struct tensor logits, struct tensor rows)
{
	op_gemm(h->env->dev, &(struct op_gemm){.out = logits, .a = rows, .b = matrix(h), .b_transposed = true});
}

/* One block: rows begin … begin+count of the micro-batch, normed [N, C]. */
static void block_loss(const struct head *h, struct tensor normed, int64_t begin, int64_t count, struct tensor targets,
		       bool training)
{
	const struct env *env = h->env;
	struct tensor rows = tensor_rows(normed, begin, count);
	struct tensor target = tensor_rows(targets, begin, count);
	struct tensor logits = tensor_rows(h->logits, 0, count);
	struct tensor lse = tensor_rows(h->lse, 0, count);
	struct tensor all = tensor_of(h->stats.data, h->stats.dtype, 3, (int64_t[]){env->tensor_size, count, 3});
	struct tensor mine = tensor_of(tensor_rows(all, env->tensor_rank, 1).data, all.dtype, 2, (int64_t[]){count, 3});

	logits_forward(h, logits, rows);
	op_loss_stats(env->dev, &(struct op_loss_stats){
		.stats = mine, .logits = logits, .targets = target, .first = h->first, .valid = h->valid,
	});
	if (env->tensor_size > 1) {
		dev_wait(env->dev, Q_TENSOR, dev_mark(env->dev, Q_COMPUTE));
		comm_all_gather(env->tensor, Q_TENSOR, all, tensor_of(mine.data, mine.dtype, 3, (int64_t[]){1, count, 3}));
		dev_wait(env->dev, Q_COMPUTE, dev_mark(env->dev, Q_TENSOR));
	}
	op_loss_combine(env->dev, &(struct op_loss_combine){
		.lse = lse, .losses = tensor_rows(h->losses, begin, count), .stats = all, .targets = target,
	});
	if (!training)
		return;
	op_loss_backward(env->dev, &(struct op_loss_backward){
		.logits = logits, .lse = lse, .targets = target,
		.first = h->first, .valid = h->valid, .sequence = env->model->sequence,
	});
	op_gemm(env->dev, &(struct op_gemm){
		.out = tensor_rows(env_partial(env, h->dnormed), begin, count), .a = logits, .b = matrix(h),
	});
	op_gemm(env->dev, &(struct op_gemm){
		.out = dmatrix(h), .a = logits, .a_transposed = true, .b = rows, .accumulate = true,
	});
}

void head_loss(const struct head *h, struct tensor x, struct tensor targets, struct tensor totals, struct tensor d,
	       const struct pass *pass)
{
	const struct env *env = h->env;

	unit_forward(h, pass->training);
	norm_forward(&h->norm, &h->saved, h->normed, x);
	struct tensor normed = env_gather(env, h->normed);
	for (int64_t begin = 0; begin < env->tokens; begin += h->block) {
		int64_t left = env->tokens - begin;
		block_loss(h, normed, begin, left < h->block ? left : h->block, targets, pass->training);
	}
	if (env->tensor_rank == 0)
		op_loss_total(env->dev, &(struct op_loss_total){.totals = totals, .losses = h->losses, .targets = targets});
	if (!pass->training)
		return;
	unit_backward(h);
	env_reduce(env, h->dnormed);
	norm_backward(&h->norm, &h->saved, d, h->dnormed, (struct tensor){0}, x);
}

void head_logits(const struct head *h, struct tensor x, int64_t row, float *out)
{
	const struct env *env = h->env;
	struct tensor logits = tensor_rows(h->logits, 0, 1);

	check(logits.dtype == F32);
	unit_forward(h, false);
	norm_forward(&h->norm, &h->saved, h->normed, x);
	logits_forward(h, logits, tensor_rows(h->normed, row, 1));
	logits.shape[1] = h->valid; /* one row: its leading columns */
	dev_read(env->dev, Q_COMPUTE, out, logits);
	dev_finish(env->dev, dev_mark(env->dev, Q_COMPUTE));
}

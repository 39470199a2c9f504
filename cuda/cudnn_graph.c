#include "cudnn_graph.h"

typedef cudnnBackendDescriptor_t part;

/* A graph that grows: its operations, and the number of the next tensor that lies nowhere. */
struct graph {
	struct cudnn_parts *p;
	const struct attention_key *key;
	int64_t groups;
	int64_t batch, heads, kv_heads; /* entries of a call; heads of an entry */
	cudnnDataType_t type;
	part operations[32];
	int count;
	int64_t next;
};

struct dims {
	int64_t n[4], stride[4];
};

static part tensor(struct graph *g, int64_t number, cudnnDataType_t type, const struct dims *d)
{
	bool host = number >= CUDNN_SCALE && number < CUDNN_TENSORS, nowhere = number >= CUDNN_TENSORS;
	int64_t align = host || nowhere || type == CUDNN_DATA_FLOAT ? 4 : 16;
	part t = cudnn_part_make(g->p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d->n);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, d->stride);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &nowhere);
	cudnn_part_set(g->p, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &host);
	cudnn_part_finish(g->p, t);
	return t;
}

static part one_number(struct graph *g, int64_t number)
{
	return tensor(g, number, CUDNN_DATA_FLOAT, &(struct dims){{1, 1, 1, 1}, {1, 1, 1, 1}});
}

/* What lies nowhere, rows without gaps. */
static part between(struct graph *g, cudnnDataType_t type, int64_t heads, int64_t rows, int64_t columns)
{
	return tensor(g, g->next++, type, &(struct dims){{g->batch, heads, rows, columns},
							 {heads * rows * columns, rows * columns, columns, 1}});
}

static part scores(struct graph *g, cudnnDataType_t type)
{
	return between(g, type, g->heads, g->key->tokens, g->key->tokens);
}

/* One number a query. */
static part column(struct graph *g, int64_t number)
{
	int64_t h = g->heads, T = g->key->tokens;
	return tensor(g, number ? number : g->next++, CUDNN_DATA_FLOAT, &(struct dims){{g->batch, h, T, 1}, {h * T, T, 1, 1}});
}

/* Queries, keys or values of qkv or dqkv. turned: [D, T]. */
static part heads_of(struct graph *g, int64_t number, bool queries, bool turned)
{
	const struct attention_key *k = g->key;
	int64_t group = (k->heads + 2) * k->size, token = k->groups * group, n = queries ? g->heads : g->kv_heads;
	int64_t entry = g->groups ? group : k->tokens * token, head = queries && k->heads > 1 ? k->size : group;
	return tensor(g, number, g->type, turned ? &(struct dims){{g->batch, n, k->size, k->tokens}, {entry, head, 1, token}}
						 : &(struct dims){{g->batch, n, k->tokens, k->size}, {entry, head, token, 1}});
}

/* out or dout [N, H, D]. */
static part rows_of(struct graph *g, int64_t number)
{
	const struct attention_key *k = g->key;
	int64_t token = k->groups * k->heads * k->size, entry = g->groups ? k->heads * k->size : k->tokens * token;
	return tensor(g, number, g->type, &(struct dims){{g->batch, g->heads, k->tokens, k->size}, {entry, k->size, token, 1}});
}

static void add(struct graph *g, part operation)
{
	cudnn_part_finish(g->p, operation);
	check(g->count < (int)(sizeof g->operations / sizeof *g->operations));
	g->operations[g->count++] = operation;
}

static part product(struct graph *g, part a, part b, part out)
{
	cudnnDataType_t sums = CUDNN_DATA_FLOAT;
	part kind = cudnn_part_make(g->p, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
	cudnn_part_finish(g->p, kind);
	part o = cudnn_part_make(g->p, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
	add(g, o);
	return out;
}

/* out = mode(x, b), element by element; b NULL: of x alone; where: x, or b where it is false. */
static part elements(struct graph *g, cudnnPointwiseMode_t mode, part x, part b, part where, part out)
{
	cudnnDataType_t math = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
	part kind = cudnn_part_make(g->p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
	cudnn_part_finish(g->p, kind);
	part o = cudnn_part_make(g->p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	if (where)
		cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
	add(g, o);
	return out;
}

/* The number of each element's row (axis 2) or column (axis 3). */
static part place(struct graph *g, part x, int64_t axis)
{
	cudnnDataType_t math = CUDNN_DATA_FLOAT;
	cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
	part kind = cudnn_part_make(g->p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), out = scores(g, CUDNN_DATA_INT32);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
	cudnn_part_finish(g->p, kind);
	part o = cudnn_part_make(g->p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
	add(g, o);
	return out;
}

static part reduce(struct graph *g, cudnnReduceTensorOp_t how, part x, part out)
{
	cudnnDataType_t sums = CUDNN_DATA_FLOAT;
	part kind = cudnn_part_make(g->p, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
	cudnn_part_set(g->p, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
	cudnn_part_finish(g->p, kind);
	part o = cudnn_part_make(g->p, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
	add(g, o);
	return out;
}

static part reshape(struct graph *g, part x, part out)
{
	part o = cudnn_part_make(g->p, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
	cudnn_part_refer(g->p, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
	add(g, o);
	return out;
}

/* [.., T, T] the other way round, as the type that products take. */
static part turned(struct graph *g, part x)
{
	int64_t h = g->heads, T = g->key->tokens;
	return reshape(g, x, tensor(g, g->next++, g->type, &(struct dims){{g->batch, h, T, T}, {h * T * T, T * T, 1, T}}));
}

static part masked(struct graph *g, part s)
{
	part row = place(g, s, 2), key = place(g, s, 3);
	part seen = elements(g, CUDNN_POINTWISE_CMP_GE, row, key, NULL, scores(g, CUDNN_DATA_BOOLEAN));
	return elements(g, CUDNN_POINTWISE_BINARY_SELECT, s, one_number(g, CUDNN_MINUS_INFINITY), seen, scores(g, CUDNN_DATA_FLOAT));
}

static struct graph begin(struct cudnn_parts *p, const struct attention_key *k, int64_t groups)
{
	check(groups || k->groups == 1 || k->heads == 1);
	return (struct graph){
		.p = p, .key = k, .groups = groups, .next = CUDNN_TENSORS, .batch = groups ? groups : k->batch,
		.heads = groups ? k->heads : k->groups * k->heads, .kv_heads = groups ? 1 : k->groups,
		.type = k->type == F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
	};
}

static part finish(struct graph *g, cudnnHandle_t handle)
{
	part all = cudnn_part_make(g->p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	if (handle)
		cudnn_part_set(g->p, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
	cudnn_part_set(g->p, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->count, g->operations);
	cudnn_part_finish(g->p, all);
	return all;
}

cudnnBackendDescriptor_t cudnn_graph_forward(struct cudnn_parts *parts, cudnnHandle_t handle, const struct attention_key *key,
					     int64_t groups)
{
	struct graph made = begin(parts, key, groups), *g = &made;
	const cudnnDataType_t F = CUDNN_DATA_FLOAT;
	part q = heads_of(g, CUDNN_Q, true, false), kt = heads_of(g, CUDNN_K, false, true), v = heads_of(g, CUDNN_V, false, false);
	part s = product(g, q, kt, scores(g, F));
	s = elements(g, CUDNN_POINTWISE_MUL, s, one_number(g, CUDNN_SCALE), NULL, scores(g, F));
	s = masked(g, s);
	part most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, column(g, 0));
	part less = elements(g, CUDNN_POINTWISE_SUB, s, most, NULL, scores(g, F));
	part power = elements(g, CUDNN_POINTWISE_EXP, less, NULL, NULL, scores(g, F));
	part sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, power, column(g, 0));
	part log = elements(g, CUDNN_POINTWISE_LOG, sum, NULL, NULL, column(g, 0));
	elements(g, CUDNN_POINTWISE_ADD, most, log, NULL, column(g, CUDNN_LSE));
	part weights = elements(g, CUDNN_POINTWISE_DIV, power, sum, NULL, scores(g, g->type));
	product(g, weights, v, rows_of(g, CUDNN_OUT));
	return finish(g, handle);
}

/* The gradient of keys or values: a sum over the heads of a group where there is more than one. */
static void gradient(struct graph *g, part weights, part with, int64_t number)
{
	part to = heads_of(g, number, false, false);
	if (g->heads == g->kv_heads) {
		product(g, weights, with, to);
		return;
	}
	reduce(g, CUDNN_REDUCE_TENSOR_ADD, product(g, weights, with, between(g, CUDNN_DATA_FLOAT, g->heads, g->key->tokens, g->key->size)), to);
}

cudnnBackendDescriptor_t cudnn_graph_backward(struct cudnn_parts *parts, cudnnHandle_t handle, const struct attention_key *key,
					     int64_t groups)
{
	struct graph made = begin(parts, key, groups), *g = &made;
	const cudnnDataType_t F = CUDNN_DATA_FLOAT;
	part q = heads_of(g, CUDNN_Q, true, false), kt = heads_of(g, CUDNN_K, false, true), vt = heads_of(g, CUDNN_V, false, true);
	part out = rows_of(g, CUDNN_OUT), dout = rows_of(g, CUDNN_DOUT), lse = column(g, CUDNN_LSE), scale = one_number(g, CUDNN_SCALE);
	/* δ = dout·out */
	part both = elements(g, CUDNN_POINTWISE_MUL, dout, out, NULL, between(g, F, g->heads, g->key->tokens, g->key->size));
	part delta = reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, column(g, 0));
	delta = elements(g, CUDNN_POINTWISE_MUL, delta, one_number(g, CUDNN_ONE), NULL, column(g, CUDNN_DELTA));
	/* p, and dv = pᵀ·dout */
	part s = product(g, q, kt, scores(g, F));
	s = elements(g, CUDNN_POINTWISE_MUL, s, scale, NULL, scores(g, F));
	s = elements(g, CUDNN_POINTWISE_SUB, s, lse, NULL, scores(g, F));
	s = masked(g, s);
	part p = elements(g, CUDNN_POINTWISE_EXP, s, NULL, NULL, scores(g, F));
	gradient(g, turned(g, p), dout, CUDNN_DV);
	/* ds = p·(dout·vᵀ − δ)·scale, and dk = dsᵀ·q, dq = ds·k */
	part ds = product(g, dout, vt, scores(g, F));
	ds = elements(g, CUDNN_POINTWISE_SUB, ds, delta, NULL, scores(g, F));
	ds = elements(g, CUDNN_POINTWISE_MUL, ds, p, NULL, scores(g, F));
	ds = elements(g, CUDNN_POINTWISE_MUL, ds, scale, NULL, scores(g, g->type));
	gradient(g, turned(g, ds), q, CUDNN_DK);
	part k = reshape(g, kt, heads_of(g, g->next++, false, false));
	product(g, ds, k, heads_of(g, CUDNN_DQ, true, false));
	return finish(g, handle);
}

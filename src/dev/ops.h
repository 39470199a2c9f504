/* ops.h: the book of ops: every computation that a device can be asked for.
 *
 * An op computes on one device and never communicates. Every op runs on the compute queue, allocates nothing, and
 * gives the same bits for the same inputs on the same backend, for any number of threads. What is written here is
 * the definition; `cpu/plain` is the same in C, and all other code is checked against that.
 *
 * Types. Before a shape, T is the compute type of the call (F16, BF16, F32, F64): activations and weights. S is the
 * type of sums: F64 when T is F64, else F32. One call has one T. Sums, statistics and everything inside an op are in
 * S, and a value is rounded to T only where it is stored: what an op computes from a value that it also stores, it
 * computes from the unrounded one, unless the op says "as rounded to T". Numbers from the scalars, the rules and the
 * arguments are combined in FP64 and enter the sums rounded to S. Activation gradients are written; parameter gradients
 * (type S) are added to.
 *
 * Letters in shapes: B micro-batch, T sequence, N = B·T rows, C width, F inner width, H heads, G heads of a KV group,
 * KV groups, D head size, V vocabulary rows here (padded). On a tensor rank H, KV, F, V are the local share. Square
 * brackets give shapes, with exactly these dimensions; "?" marks a tensor that may be left out (dims 0).
 *
 * Memory. A tensor is aligned to its element, no more. What an op writes shares no memory with anything else in the
 * call, except where it says that two tensors may be the same memory: then they are the same or apart.
 *
 * Not finite. An infinity or NaN that goes into a sum comes out of it as one of the two: no op hides it, so that the
 * verdict of the step sees every overflow.
 *
 * Used by model and train. Implementers fill struct ops in backend.h; ops.c checks each call. */
#ifndef MTRAIN_DEV_OPS_H
#define MTRAIN_DEV_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/anywhere.h"
#include "dev/device.h"

/* Which tokens the rows of a tensor are. Rows of a micro-batch are counted over its samples: row k = b·length + t is
 * token first + t of the sample with global number scalars.samples + sample + b, in sequences of `sequence` tokens; in
 * the second half of the sample's rows, t ≥ length/2, it is token first + t + jump. So a rank's share of a sequence can be
 * two stretches of one size, as context parallelism cuts them; jump 0: one.
 *
 * The tensor has pieces of `piece` rows, each `stride` rows behind the one before: row n of it is row
 * k = row + n/piece·stride + n%piece. With piece 0 it is one stretch, k = row + n. So each chunk of a micro-batch's rows
 * can be shared out among ranks. */
struct span {
	int64_t sample; /* the micro-batch's first sample, counted from the first of the step */
	int64_t row;    /* the first row here */
	int64_t piece, stride;
	int64_t first, length, sequence;
	int64_t jump;   /* tokens left out between the halves, of one size where there are any */
};

/* Token of row t of a sample. */
ANYWHERE static inline int64_t span_place(const struct span *s, int64_t t)
{
	return s->first + t + (t < s->length / 2 ? 0 : s->jump);
}

/* How many rows of a sample come before a token: more the later the token. */
ANYWHERE static inline int64_t span_before(const struct span *s, int64_t token)
{
	int64_t half = s->length / 2, before = token - s->first;
	if (before > half)
		before = before - s->jump > half ? before - s->jump : half;
	return before < 0 ? 0 : before < s->length ? before : s->length;
}

/* The micro-batch's row k that row n of the tensor is. */
ANYWHERE static inline int64_t span_row(const struct span *s, int64_t n)
{
	return s->row + (s->piece > 0 ? n / s->piece * s->stride + n % s->piece : n);
}

/* The row of the tensor that is the micro-batch's row k ≥ row; −1: none is. */
ANYWHERE static inline int64_t span_find(const struct span *s, int64_t k)
{
	int64_t n = k - s->row;
	if (s->piece == 0)
		return n;
	return n % s->stride < s->piece ? n / s->stride * s->piece + n % s->stride : -1;
}

/* Token within its sequence, and sample counted from the first of the step, of row n. */
ANYWHERE static inline int64_t span_token(const struct span *s, int64_t n)
{
	return span_place(s, span_row(s, n) % s->length);
}

ANYWHERE static inline int64_t span_sample(const struct span *s, int64_t n)
{
	return s->sample + span_row(s, n) / s->length;
}

/* Dropout with counter-based masks (rng.h: rng_dropout): element e of a sample is kept iff word e%4 of group e/4 is
 * ≥ p·2³²; what is kept is scaled by 1/(1−p), what is not is multiplied by 0. In backward dropout' does the same to
 * the gradient. rate 0: nothing is dropped, nothing is drawn, and site and span do not count. */
struct dropout {
	double rate; /* p: 0 ≤ p ≤ 1 − 2⁻³² */
	uint64_t seed;
	uint32_t site; /* 8·layer + kind */
	struct span span;
};

enum norm_kind { NORM_LAYER, NORM_RMS };
enum gelu_kind { GELU_TANH, GELU_ERF };

/* GELU, tanh form: x/2·(1 + tanh(√(2/π)(x + 0.044715x³))); erf form: x/2·(1 + erf(x/√2)). */

/* out[n] = table[tokens[n] − first] where that row is here (0 ≤ tokens[n] − first < rows), else 0. */
struct op_embedding_forward {
	struct tensor out;    /* T [N, C] */
	struct tensor tokens; /* I32 [N] */
	struct tensor table;  /* T [V, C] */
	int64_t first;        /* vocabulary id of the table's row 0 */
};

/* dtable[tokens[n] − first] += dout[n], rows that are not here skipped; for each row n in ascending order. */
struct op_embedding_backward {
	struct tensor dtable; /* S [V, C], added to */
	struct tensor dout;   /* T [N, C] */
	struct tensor tokens; /* I32 [N] */
	struct tensor order;  /* I32 [N]: row numbers sorted by token id, stable */
	int64_t first;
};

/* out[n] = dropout(x[n] + table[token of row n]): learned positions; no table: dropout alone.
 * Dropout element token·C + c of its sample. x and out may be the same memory. */
struct op_position_forward {
	struct tensor out;    /* T [N, C] */
	struct tensor x;      /* T [N, C] */
	struct tensor table;  /* ? T [sequence, C] */
	struct dropout dropout; /* its span also places the rows */
};

/* dx = dropout'(dout); dtable[token of row n] += dx[n], n ascending. dx and dout may be the same memory. */
struct op_position_backward {
	struct tensor dx;     /* T [N, C] */
	struct tensor dout;   /* T [N, C] */
	struct tensor dtable; /* ? S [sequence, C], added to */
	struct dropout dropout;
};

/* One normalisation, as both fused forms use it. LayerNorm: (x − mean)·rstd·weight + bias with the biased variance;
 * RMSNorm: x·rstd·weight (+ bias) with rstd = 1/√(mean x² + epsilon). */
struct op_norm_forward {
	struct tensor out;       /* T [N, C] */
	struct tensor mean, rstd; /* S [N]; mean ? (given for NORM_LAYER, left out for NORM_RMS) */
	struct tensor x;         /* T [N, C] */
	struct tensor weight;    /* T [C] */
	struct tensor bias;      /* ? T [C] */
	enum norm_kind kind;
	double epsilon;
};

/* sum = residual + dropout(x + bias); with norm_weight given also out = norm(sum as rounded to T), in the same bits that
 * norm_forward gives for that sum.
 * Dropout element: token·C + c of its sample. sum may be the same memory as residual or x. */
struct op_residual_forward {
	struct tensor sum;       /* T [N, C] */
	struct tensor residual;  /* T [N, C] */
	struct tensor x;         /* T [N, C] */
	struct tensor bias;      /* ? T [C] */
	struct dropout dropout;
	struct tensor out;       /* ? T [N, C] */
	struct tensor mean, rstd; /* ? S [N]; as in norm_forward */
	struct tensor norm_weight; /* ? T [C]: given or left out together with out and rstd */
	struct tensor norm_bias; /* ? T [C] */
	enum norm_kind kind;
	double epsilon;
};

/* With x̂ = (x − mean)·rstd and g = dout·weight:
 * LayerNorm dx = dresidual + rstd·(g − mean(g) − x̂·mean(g·x̂)); RMSNorm without the mean(g) term;
 * dweight += Σ_n dout·x̂, dbias += Σ_n dout. dx and dresidual may be the same memory. */
struct op_norm_backward {
	struct tensor dx;        /* T [N, C] */
	struct tensor dweight;   /* S [C], added to */
	struct tensor dbias;     /* ? S [C], added to */
	struct tensor dout;      /* T [N, C] */
	struct tensor dresidual; /* ? T [N, C] */
	struct tensor x;         /* T [N, C], what was normalised */
	struct tensor mean, rstd; /* S [N]; mean ? */
	struct tensor weight;    /* T [C] */
	enum norm_kind kind;
};

/* Backward of the x branch of residual_forward: dx = dropout'(dsum), dbias += Σ_n dx. Without dropout dx may be left
 * out (it equals dsum) and only dbias is formed. */
struct op_residual_backward {
	struct tensor dx;    /* ? T [N, C] */
	struct tensor dbias; /* ? S [C], added to */
	struct tensor dsum;  /* T [N, C] */
	struct dropout dropout;
};

/* out = op(a)·op(b), accumulated in S, with an epilogue. m, k, n from the shapes as transposed. */
enum gemm_epilogue {
	GEMM_PLAIN,     /* out = a·b */
	GEMM_BIAS,      /* out = a·b + bias */
	GEMM_BIAS_GELU, /* aux = a·b + bias; out = gelu(aux as rounded to T) */
	GEMM_DGELU,     /* out = (a·b)·gelu'(aux) */
};

struct op_gemm {
	struct tensor out;  /* T [m, n]; with accumulate S [m, n] */
	struct tensor a;    /* T [m, k], transposed: [k, m] */
	struct tensor b;    /* T [k, n], transposed: [n, k] */
	bool a_transposed, b_transposed;
	bool accumulate;    /* out += a·b, out in S: weight gradients into the main gradient. Only GEMM_PLAIN */
	enum gemm_epilogue epilogue;
	struct tensor bias; /* ? T [n]: given with GEMM_BIAS; with GEMM_BIAS_GELU 0 where it is left out; else left out */
	struct tensor aux;  /* ? T [m, n]: written by GEMM_BIAS_GELU, read by GEMM_DGELU, else left out */
	enum gelu_kind gelu;
};

/* out = gelu(x): for the same x the same bits that GEMM_BIAS_GELU gives, so that a product's output can be thrown away
 * and had again from its aux. */
struct op_gelu_forward {
	struct tensor out; /* T [N, F] */
	struct tensor x;   /* T [N, F] */
	enum gelu_kind gelu;
};

/* SwiGLU (Shazeer 2020): a row of x is F gates, then F values that they let through:
 * out = silu(gate)·up with silu(g) = g·σ(g), σ(g) = 1/(1 + exp(−g)). */
struct op_swiglu_forward {
	struct tensor out; /* T [N, F] */
	struct tensor x;   /* T [N, 2·F] */
};

/* dgate = dout·up·σ·(1 + gate·(1 − σ)), dup = dout·gate·σ. */
struct op_swiglu_backward {
	struct tensor dx;   /* T [N, 2·F] */
	struct tensor dout; /* T [N, F] */
	struct tensor x;    /* T [N, 2·F] */
};

/* dbias[c] += Σ_n dout[n, c]. */
struct op_bias_backward {
	struct tensor dbias; /* S [C], added to */
	struct tensor dout;  /* T [N, C] */
};

/* Rotary positions (Su et al. 2021), in place on all queries and keys of qkv. With R the table's columns, the pair of
 * elements i and R/2 + i of such a head, i < R/2, is turned by the angle whose cosine and sine are columns i and R/2 + i of
 * the table's row for the token: x_i′ = x_i·cos − x_{R/2+i}·sin, x_{R/2+i}′ = x_{R/2+i}·cos + x_i·sin; inverse: by the opposite
 * angle. Elements from R on and all values stay. */
struct op_rope {
	struct tensor qkv;   /* T [N, KV, G + 2, D], in place */
	struct tensor table; /* S [sequence, R], R even and at most D */
	struct span span;    /* places the rows */
	bool inverse;
};

/* The largest D of the attention ops. */
enum { HEAD_SIZE_MAX = 256 };

/* Causal attention over whole sequences, heads in KV groups: qkv[n, g] holds the G query heads of group g, then its
 * key, then its value. With h = g·G + i: s_tu = scale·q_t·k_u − slopes[h]·(t − u) for u ≤ t, where slopes are left out
 * without the second term; p = softmax(s); p' = dropout(p); out_t = Σ_u p'_tu v_u. lse_t = ln Σ_u exp(s_tu) is kept for
 * backward. No [T, T] memory.
 * Dropout element: ((first_head + h)·T + t)·T + u of its sample. The span covers whole sequences: row and first 0, length T. */
struct op_attention_forward {
	struct tensor out; /* T [N, H, D] */
	struct tensor lse; /* S [B, H, T] */
	struct tensor qkv; /* T [N, KV, G + 2, D] */
	struct tensor slopes; /* ? S [H]: linear biases (Press et al. 2022) */
	int64_t sequence;  /* T */
	double scale;
	struct dropout dropout;
	int64_t first_head; /* global number of head 0 here */
};

/* With dp' = dout_t·v_u, dp = dropout'(dp'), δ_t = dout_t·out_t: ds = p·(dp − δ_t); dq_t = scale·Σ_u ds·k_u;
 * dk_u = scale·Σ_t ds·q_t; dv_u = Σ_t p'·dout_t, summed over the heads of the group. dqkv is written whole. */
struct op_attention_backward {
	struct tensor dqkv; /* T [N, KV, G + 2, D] */
	struct tensor delta; /* S [B, H, T]: room for δ; not defined afterwards */
	struct tensor dout; /* T [N, H, D] */
	struct tensor out;  /* T [N, H, D] */
	struct tensor lse;  /* S [B, H, T] */
	struct tensor qkv;  /* T [N, KV, G + 2, D] */
	struct tensor slopes; /* ? S [H]: as in forward */
	int64_t sequence;
	double scale;
	struct dropout dropout;
	int64_t first_head;
};

/* Attention where the tokens of a sequence are spread over ranks: the queries here against one rank's keys and values, merged
 * with what other parts of the keys gave. There are T rows of each sample here, T the spans' length; the dropout's span
 * places those of the queries, `keys` those of kv, and a query sees the keys that are not behind it: token(u) ≤ token(t).
 * With s, p, p' as in attention_forward, t − u there as token(t) − token(u), over the keys seen here alone,
 * l_t = ln Σ_u exp(s_tu) and o_t = Σ_u p'_tu v_u:
 * L = ln(exp(lse_t) + exp(l_t)); sum_t = exp(lse_t − L)·sum_t + exp(l_t − L)·o_t; lse_t = L. A query that sees none leaves both
 * as they were. After the parts of all keys sum is attention's out and lse its lse. p' enters its product with v as rounded
 * to T, or unrounded.
 * Dropout element: ((first_head + h)·sequence + token(t))·sequence + token(u) of its sample. */
struct op_attention_part_forward {
	struct tensor sum; /* S [N, H, D] */
	struct tensor lse; /* S [B, H, T] */
	struct tensor qkv; /* T [N, KV, G + 2, D]: the queries of it */
	struct tensor kv;  /* T [N, KV, 2, D]: a group's key, then its value */
	struct tensor slopes; /* ? S [H] */
	double scale;
	struct dropout dropout; /* its span also places the queries: whole samples */
	struct span keys;       /* its sample does not count */
	int64_t first_head;     /* global number of head 0 here */
	bool fresh;             /* the first part: as if sum had been 0 and lse −inf */
};

/* With lse and delta over all keys, and p, p', ds as in attention_backward: dq_t += scale·Σ_u ds·k_u; dk_u += scale·Σ_t ds·q_t;
 * dv_u += Σ_t p'_tu·dout_t, summed over the heads of the group. p' and ds enter these as rounded to T, or unrounded. */
struct op_attention_part_backward {
	struct tensor dq;    /* S [N, H, D], added to */
	struct tensor dkv;   /* S [N, KV, 2, D], added to */
	struct tensor delta; /* S [B, H, T] */
	struct tensor dout;  /* T [N, H, D] */
	struct tensor lse;   /* S [B, H, T] */
	struct tensor qkv;   /* T [N, KV, G + 2, D] */
	struct tensor kv;    /* T [N, KV, 2, D] */
	struct tensor slopes; /* ? S [H]: as in forward */
	double scale;
	struct dropout dropout;
	struct span keys;
	int64_t first_head;
};

/* δ_t = dout_t·out_t. */
struct op_attention_delta {
	struct tensor delta; /* S [B, H, T] */
	struct tensor dout;  /* T [N, H, D] */
	struct tensor out;   /* T [N, H, D] */
};

/* Some of the heads of each KV group: to[n, g, to_first + i] = from[n, g, from_first + i] for i < count, from T or S to T or S. */
struct op_heads_copy {
	struct tensor to;   /* [N, KV, P, D] */
	struct tensor from; /* [N, KV, P', D] */
	int64_t to_first, from_first, count;
};

/* Rows scaled to length 1: out = x·scale with scale[v] = 1/max(‖x[v]‖, 10⁻¹²), the length summed in S. */
struct op_unit_rows_forward {
	struct tensor out;   /* T [V, C] */
	struct tensor scale; /* S [V] */
	struct tensor x;     /* T [V, C] */
};

/* With x̂ = x·scale: dx[v] += scale·(dout[v] − x̂·Σ_c x̂·dout[v]), what of dout does not change the length of x̂. */
struct op_unit_rows_backward {
	struct tensor dx;    /* S [V, C], added to */
	struct tensor dout;  /* S [V, C] */
	struct tensor x;     /* T [V, C] */
	struct tensor scale; /* S [V] */
};

/* Vocabulary-parallel cross-entropy in three ops with one gather between the first and the second.
 * 1. stats[n] = {m, Σ_v exp(l_v − m), l at the target or 0} over the true vocabulary rows here (v < valid), m their
 *    maximum; no true rows here: {−inf, 0, 0}. A target that is not here, or masked, gives 0. A row with a NaN, +inf
 *    or nothing but −inf gives a sum that is NaN. */
struct op_loss_stats {
	struct tensor stats;   /* S [N, 3] */
	struct tensor logits;  /* T [N, V] */
	struct tensor targets; /* I32 [N]; −1: masked */
	int64_t first;         /* vocabulary id of column 0 */
	int64_t valid;         /* columns here that are true vocabulary: 0 … V */
};

/* 2. From the stats of all tensor ranks: lse[n] = M + ln Σ_r s_r·exp(m_r − M), M = max m_r, ranks ascending;
 *    losses[n] = lse − Σ_r target logit, 0 where masked. */
struct op_loss_combine {
	struct tensor lse;     /* S [N] */
	struct tensor losses;  /* S [N] */
	struct tensor stats;   /* S [ranks, N, 3] */
	struct tensor targets; /* I32 [N] */
};

/* 3. logits become their own gradient: (exp(l − lse) − [v is the target])·scalars.loss_scale/sequence; 0 where masked and in
 *    the columns ≥ valid. */
struct op_loss_backward {
	struct tensor logits;  /* T [N, V], in place */
	struct tensor lse;     /* S [N] */
	struct tensor targets; /* I32 [N] */
	int64_t first, valid;
	int64_t sequence;
};

/* totals[0] += Σ_n losses[n] (n ascending, FP64), totals[1] += number of targets ≥ 0. */
struct op_loss_total {
	struct tensor totals;  /* F64 [≥ 2] */
	struct tensor losses;  /* S [N] */
	struct tensor targets; /* I32 [N] */
};

/* y = x + y elementwise, rounded once. */
struct op_add {
	struct tensor y, x; /* equal shapes and types: both T or both S */
};

/* to = from, element by element, from any float type to any; F64 goes to F16 and BF16 by way of F32. */
struct op_convert {
	struct tensor to, from; /* equal shapes */
};

/* sums[slots[i]] = Σ grads[i]², FP64, in an order fixed by the shape; slots not named stay as they are. No slot is
 * named twice. */
struct op_square_sums {
	struct tensor sums;         /* F64 [slots] */
	const struct tensor *grads; /* host array [count] of S tensors */
	const int64_t *slots;       /* host array [count] */
	int64_t count;
};

/* scalars_verdict (scalars.h) on the device: totals = {Σ loss, T}, sums as gathered. */
struct op_step_verdict {
	struct tensor totals; /* F64 [≥ 2] */
	struct tensor sums;   /* F64 [params] */
	struct step_rules rules;
};

/* AdamW on a list of tensors; nothing moves when scalars.skipped. With g = grad·grad_factor:
 * m = β1·m + (1−β1)g; v = β2·v + (1−β2)g²; p −= lr·m·correction1/(√(v·correction2) + ε) + decay·p (decay where
 * the tensor says so; p on the right is the old one); weight = p in T. */
struct adamw_item {
	struct tensor master; /* S */
	struct tensor m, v;   /* S */
	struct tensor grad;   /* S */
	struct tensor weight; /* ? T: left out where the master is the weight */
	bool decay;
};
struct op_adamw {
	const struct adamw_item *items; /* host array [count] */
	int64_t count;
	struct step_rules rules;
};

/* Ops whose arguments point to lists of the caller's, which are not there after the call. */
#define OPS_OF_LISTS(X) X(square_sums) X(adamw)

/* The list of ops, walked by the table, the checks and the tests. */
#define OPS(X)                                                                                              \
	X(embedding_forward) X(embedding_backward) X(position_forward) X(position_backward) X(norm_forward) \
	X(residual_forward) X(norm_backward) X(residual_backward) X(gemm) X(gelu_forward) X(bias_backward)  \
	X(swiglu_forward) X(swiglu_backward) X(rope) X(unit_rows_forward) X(unit_rows_backward)             \
	X(attention_forward) X(attention_backward)                                                          \
	X(attention_part_forward) X(attention_part_backward) X(attention_delta) X(heads_copy)               \
	X(loss_stats) X(loss_combine) X(loss_backward) X(loss_total) X(add) X(convert) X(step_verdict)      \
	OPS_OF_LISTS(X)

#define OP_DECLARE(name) void op_##name(struct device *dev, const struct op_##name *a);
OPS(OP_DECLARE)
#undef OP_DECLARE

#endif

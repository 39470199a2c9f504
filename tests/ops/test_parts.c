/* Attention in parts, as ranks that share sequences compute it in a ring, gives what whole attention gives: two orders of one
 * sum in FP64, with dropout, linear biases, grouped heads and parts in any order; in FP32 no further from it than whole attention in FP32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cases.h"
#include "dev/cpu/cpu.h"

enum { BATCH = 2, KV = 2, G = 3, D = 8, H = KV * G, MOST = 48, RANKS_MOST = 4 };

struct whole {
	int64_t length; /* T */
	struct tensor qkv, out, lse, dout, dqkv, delta;
	struct dropout dropout;
	struct tensor slopes; /* given or left out */
};

struct share {
	struct span span;
	struct tensor qkv, kv, sum, out, lse, dout, dq, dkv, delta, dqkv;
};

static struct tensor make(enum dtype type, int dims, const int64_t *shape)
{
	struct tensor t = tensor_of(NULL, type, dims, shape);
	t.data = calloc((size_t)tensor_count(t) + 1, dtype_size(type));
	return t;
}

#define MAKE(type, ...) make(type, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static double value(struct tensor t, int64_t i)
{
	return t.dtype == F64 ? ((double *)t.data)[i] : (double)((float *)t.data)[i];
}

static void set(struct tensor t, int64_t i, double v)
{
	if (t.dtype == F64)
		((double *)t.data)[i] = v;
	else
		((float *)t.data)[i] = (float)v;
}

static void fill(struct tensor t, const char *name)
{
	for (int64_t i = 0; i < tensor_count(t); i++)
		set(t, i, (double)((float)call_draw(name, i, 2001) / 1000 - 1));
}

static void whole_run(struct device *dev, struct whole *w, enum dtype type, int64_t length, double rate, bool leaning)
{
	*w = (struct whole){
		.length = length, .qkv = MAKE(type, BATCH * length, KV, G + 2, D), .out = MAKE(type, BATCH * length, H, D),
		.lse = MAKE(type, BATCH, H, length), .dout = MAKE(type, BATCH * length, H, D),
		.dqkv = MAKE(type, BATCH * length, KV, G + 2, D), .delta = MAKE(type, BATCH, H, length),
		.dropout = {.rate = rate, .seed = 99, .site = 17, .span = {.sample = 5, .length = length, .sequence = length}},
	};
	if (leaning) {
		w->slopes = MAKE(type, H);
		for (int64_t h = 0; h < H; h++)
			set(w->slopes, h, 0.5 / (double)(1 << h));
	}
	fill(w->qkv, "qkv");
	fill(w->dout, "dout");
	op_attention_forward(dev, &(struct op_attention_forward){
		.out = w->out, .lse = w->lse, .qkv = w->qkv, .slopes = w->slopes, .sequence = length, .scale = 0.4, .dropout = w->dropout, .first_head = 2});
	op_attention_backward(dev, &(struct op_attention_backward){
		.dqkv = w->dqkv, .delta = w->delta, .dout = w->dout, .out = w->out, .lse = w->lse, .qkv = w->qkv, .slopes = w->slopes,
		.sequence = length, .scale = 0.4, .dropout = w->dropout, .first_head = 2});
}

static void whole_free(struct whole *w)
{
	struct tensor all[] = {w->qkv, w->out, w->lse, w->dout, w->dqkv, w->delta, w->slopes};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i].data);
}

/* The rows of a share, of `width` elements, from or to the whole tensor. */
static void rows(const struct share *s, int64_t length, struct tensor here, struct tensor there, bool back)
{
	int64_t width = tensor_count(here) / here.shape[0];
	for (int64_t n = 0; n < here.shape[0]; n++)
		for (int64_t i = 0; i < width; i++) {
			int64_t at = (n / s->span.length * length + span_token(&s->span, n)) * width + i;
			if (back)
				set(there, at, value(here, n * width + i));
			else
				set(here, n * width + i, value(there, at));
		}
}

static void share_make(struct device *dev, struct share *s, const struct whole *w, int rank, int ranks)
{
	enum dtype type = w->qkv.dtype;
	int64_t length = w->length / ranks, N = BATCH * length;
	*s = (struct share){
		.span = {.sample = 5, .first = rank * length / 2, .length = length, .sequence = w->length, .jump = (ranks - 1 - rank) * length},
		.qkv = MAKE(type, N, KV, G + 2, D), .kv = MAKE(type, N, KV, 2, D), .sum = MAKE(type, N, H, D), .out = MAKE(type, N, H, D),
		.lse = MAKE(type, BATCH, H, length), .dout = MAKE(type, N, H, D), .dq = MAKE(type, N, KV, G, D),
		.dkv = MAKE(type, N, KV, 2, D), .delta = MAKE(type, BATCH, H, length), .dqkv = MAKE(type, N, KV, G + 2, D),
	};
	rows(s, w->length, s->qkv, w->qkv, false);
	rows(s, w->length, s->dout, w->dout, false);
	op_heads_copy(dev, &(struct op_heads_copy){.to = s->kv, .from = s->qkv, .from_first = G, .count = 2});
}

static void share_free(struct share *s)
{
	struct tensor all[] = {s->qkv, s->kv, s->sum, s->out, s->lse, s->dout, s->dq, s->dkv, s->delta, s->dqkv};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i].data);
}

/* Rank `rank` over the shares of all, its own first, then backwards or forwards round the ring. */
static void ring(struct device *dev, struct share *shares, const struct whole *w, int rank, int ranks, int direction)
{
	struct share *s = &shares[rank];
	struct dropout dropout = w->dropout;
	dropout.span = s->span;
	for (int i = 0; i < ranks; i++) {
		struct share *from = &shares[(rank + direction * i + ranks) % ranks];
		op_attention_part_forward(dev, &(struct op_attention_part_forward){
			.sum = s->sum, .lse = s->lse, .qkv = s->qkv, .kv = from->kv, .slopes = w->slopes, .scale = 0.4, .dropout = dropout, .keys = from->span,
			.first_head = 2, .fresh = i == 0});
	}
	op_convert(dev, &(struct op_convert){.to = s->out, .from = s->sum});
	op_attention_delta(dev, &(struct op_attention_delta){.delta = s->delta, .dout = s->dout, .out = s->out});
	for (int i = 0; i < ranks; i++) {
		struct share *from = &shares[(rank + direction * i + ranks) % ranks];
		struct tensor dq = tensor_of(s->dq.data, s->dq.dtype, 3, (int64_t[]){s->dq.shape[0], H, D});
		op_attention_part_backward(dev, &(struct op_attention_part_backward){
			.dq = dq, .dkv = from->dkv, .delta = s->delta, .dout = s->dout, .lse = s->lse, .qkv = s->qkv, .kv = from->kv,
			.slopes = w->slopes, .scale = 0.4, .dropout = dropout, .keys = from->span, .first_head = 2});
	}
}

static double largest(struct tensor t)
{
	double most = 0;
	for (int64_t i = 0; i < tensor_count(t); i++)
		most = fmax(most, fabs(value(t, i)));
	return most;
}

static double apart(struct tensor a, struct tensor b)
{
	double most = 0;
	for (int64_t i = 0; i < tensor_count(a); i++)
		most = fmax(most, fabs(value(a, i) - value(b, i)));
	return most;
}

/* out and dqkv of the shares, put together, against those of whole attention; `honest`: what they may be apart. */
static void check_shares(struct device *dev, const struct whole *w, const struct whole *right, int ranks, int direction,
			 double honest_out, double honest_dqkv)
{
	struct share shares[RANKS_MOST];
	struct tensor out = MAKE(w->out.dtype, BATCH * w->length, H, D);
	struct tensor dqkv = MAKE(w->out.dtype, BATCH * w->length, KV, G + 2, D);
	for (int r = 0; r < ranks; r++)
		share_make(dev, &shares[r], w, r, ranks);
	for (int r = 0; r < ranks; r++)
		ring(dev, shares, w, r, ranks, direction);
	for (int r = 0; r < ranks; r++) {
		struct share *s = &shares[r];
		op_heads_copy(dev, &(struct op_heads_copy){.to = s->dqkv, .from = s->dq, .count = G});
		op_heads_copy(dev, &(struct op_heads_copy){.to = s->dqkv, .from = s->dkv, .to_first = G, .count = 2});
		rows(s, w->length, s->out, out, true);
		rows(s, w->length, s->dqkv, dqkv, true);
		share_free(s);
	}
	if (!(apart(out, right->out) <= honest_out) || !(apart(dqkv, right->dqkv) <= honest_dqkv))
		fail_msg("%s over %d ranks of %lld tokens: out is %.3g apart, may be %.3g; dqkv %.3g, %.3g", dtype_name(w->out.dtype), ranks,
			 (long long)w->length, apart(out, right->out), honest_out, apart(dqkv, right->dqkv), honest_dqkv);
	free(out.data);
	free(dqkv.data);
}

static const double exactness = 1e-13; /* of the largest value: two orders of one sum in FP64 */

static void parts_give_the_whole(void **state)
{
	struct bench plain, fast;
	(void)state;
	bench_open(&plain, &backend_cpu, "plain", 1);
	bench_open(&fast, &backend_cpu, NULL, 2);
	struct scalars scalars = {.samples = 3};
	dev_write_scalars(plain.dev, Q_COMPUTE, &scalars);
	dev_write_scalars(fast.dev, Q_COMPUTE, &scalars);
	for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
		for (int k = 0; k < 8; k++) {
			int64_t length = ranks * 2 * (k % 4 < 2 ? 1 : MOST / ranks / 2);
			double rate = k % 2 ? 0.3 : 0;
			struct whole r, p;
			whole_run(plain.dev, &r, F64, length, rate, k >= 4);
			whole_run(plain.dev, &p, F32, length, rate, k >= 4);
			for (int direction = -1; direction <= 1; direction += 2) {
				check_shares(plain.dev, &r, &r, ranks, direction, exactness * largest(r.out), exactness * largest(r.dqkv));
				check_shares(fast.dev, &p, &r, ranks, direction, 2 * apart(p.out, r.out) + 1e-6 * largest(r.out),
					     2 * apart(p.dqkv, r.dqkv) + 1e-6 * largest(r.dqkv));
			}
			whole_free(&r);
			whole_free(&p);
		}
	bench_close(&plain);
	bench_close(&fast);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(parts_give_the_whole)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

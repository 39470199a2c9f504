/* Where cuDNN's graphs read and write: this program stands in for cudnnBackendExecute and computes attention on the host, at the
 * addresses of each call and with the sizes and strides that the graph's own tensors have. What comes out must be the plain
 * column's, for every way to cut an op into calls. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cudnn_graph.h"
#include "cudnn_plan.h"
#include "dev/cpu/cpu.h"

enum { MOST = 64 };

/* A tensor of the graph, at the memory of the call. */
struct placed {
	int64_t n[4], stride[4];
	char *at;
};

static struct cudnn_plan *current;
static int calls;

/* What the latest call was given: the library does not tell it. */
static struct {
	int64_t numbers[MOST], count;
	char *at[MOST];
} given;

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t what, cudnnBackendAttributeType_t type,
				       int64_t count, const void *values)
{
	static cudnnStatus_t (*library)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
					const void *);
	if (!library)
		*(void **)&library = dlsym(RTLD_NEXT, "cudnnBackendSetAttribute");
	assert_non_null(library);
	if (what == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
		memcpy(given.numbers, values, (size_t)(given.count = count) * sizeof *given.numbers);
	if (what == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
		memcpy(given.at, values, (size_t)count * sizeof *given.at);
	return library(to, what, type, count, values);
}

static struct placed find(int64_t number)
{
	struct placed p = {.at = NULL};
	int64_t id, one;
	for (int64_t i = 0; i < given.count; i++)
		if (given.numbers[i] == number)
			p.at = given.at[i];
	for (int i = 0; i < current->parts.count && p.at; i++) {
		cudnnBackendDescriptor_t t = current->parts.list[i];
		if (cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one, &id) != CUDNN_STATUS_SUCCESS ||
		    id != number)
			continue;
		assert_int_equal(cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, &one, p.n), 0);
		assert_int_equal(cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, &one, p.stride), 0);
		return p;
	}
	assert_null(p.at);
	return p;
}

/* Element (b, h, t, d); keys and values may lie the other way round. */
static uint16_t *half(const struct placed *p, int64_t b, int64_t h, int64_t t, int64_t d)
{
	bool turned = p->n[3] == current->workspace; /* T, which this test keeps apart from D */
	return (uint16_t *)p->at + b * p->stride[0] + h * p->stride[1] + t * p->stride[turned ? 3 : 2] + d * p->stride[turned ? 2 : 3];
}

static double value(const struct placed *p, int64_t b, int64_t h, int64_t t, int64_t d)
{
	return (double)float_from_fp16(*half(p, b, h, t, d));
}

static double dot(const struct placed *x, const struct placed *y, int64_t b, int64_t h, int64_t g, int64_t t, int64_t u, int64_t D)
{
	double sum = 0;
	for (int64_t d = 0; d < D; d++)
		sum += value(x, b, h, t, d) * value(y, b, g, u, d);
	return sum;
}

static float *row(const struct placed *p, int64_t b, int64_t h, int64_t t)
{
	return (float *)p->at + b * p->stride[0] + h * p->stride[1] + t * p->stride[2];
}

static void add(const struct placed *p, int64_t b, int64_t h, int64_t t, int64_t d, double x, bool first)
{
	*half(p, b, h, t, d) = fp16_from_float((float)(x + (first ? 0 : value(p, b, h, t, d))));
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	struct placed q = find(CUDNN_Q), k = find(CUDNN_K), v = find(CUDNN_V), out = find(CUDNN_OUT);
	struct placed lse = find(CUDNN_LSE), dout = find(CUDNN_DOUT), delta = find(CUDNN_DELTA);
	struct placed dq = find(CUDNN_DQ), dk = find(CUDNN_DK), dv = find(CUDNN_DV), scale = find(CUDNN_SCALE);
	int64_t T = q.n[2], D = q.n[3], share = q.n[1] / k.n[1];
	double by = (double)*(float *)scale.at;
	(void)handle, (void)plan, (void)pack;
	calls++;
	for (int64_t b = 0; b < q.n[0]; b++)
		for (int64_t h = 0; h < q.n[1]; h++)
			for (int64_t t = 0, g = h / share; t < T; t++) {
				double sum = 0, less = 0;
				for (int64_t u = 0; u <= t; u++)
					sum += exp(by * dot(&q, &k, b, h, g, t, u, D));
				if (!dq.at)
					*row(&lse, b, h, t) = (float)log(sum);
				else
					less = dot(&dout, &out, b, h, h, t, t, D);
				if (dq.at)
					*row(&delta, b, h, t) = (float)less;
				for (int64_t u = 0; u < T; u++)
					for (int64_t d = 0; d < D; d++) {
						double p = u > t ? 0 : exp(by * dot(&q, &k, b, h, g, t, u, D) - (double)*row(&lse, b, h, t));
						double ds = dq.at ? by * p * (dot(&dout, &v, b, h, g, t, u, D) - less) : 0;
						if (!dq.at) {
							add(&out, b, h, t, d, p * value(&v, b, g, u, d), u == 0);
							continue;
						}
						add(&dq, b, h, t, d, ds * value(&k, b, g, u, d), u == 0);
						add(&dk, b, g, u, d, ds * value(&q, b, h, t, d), h % share == 0 && t == 0);
						add(&dv, b, g, u, d, p * value(&dout, b, h, t, d), h % share == 0 && t == 0);
					}
			}
	return CUDNN_STATUS_SUCCESS;
}

static struct device *dev;

static struct tensor take(enum dtype type, int dims, const int64_t *shape, int random)
{
	struct tensor t = tensor_of(NULL, type, dims, shape);
	t.data = malloc(tensor_bytes(t));
	assert_non_null(t.data);
	memset(t.data, 0xff, tensor_bytes(t)); /* NaN */
	for (int64_t i = 0; i < tensor_count(t) && random; i++)
		((uint16_t *)t.data)[i] = fp16_from_float((float)((i * 7919 + random) % 401 - 200) / 150);
	return t;
}

static void near(struct tensor x, struct tensor right)
{
	for (int64_t i = 0; i < tensor_count(x); i++) {
		bool single = x.dtype == F32;
		double a = single ? (double)((float *)x.data)[i] : (double)float_from_fp16(((uint16_t *)x.data)[i]);
		double b = single ? (double)((float *)right.data)[i] : (double)float_from_fp16(((uint16_t *)right.data)[i]);
		if (!(fabs(a - b) <= 0.02))
			fail_msg("element %lld is %g, should be %g", (long long)i, a, b);
	}
}

/* One op both ways, in calls of so many groups. */
static void check_layout(int64_t B, int64_t T, int64_t KV, int64_t G, int64_t D, int64_t groups)
{
	const int64_t in[] = {B * T, KV, G + 2, D}, to[] = {B * T, KV * G, D}, rows[] = {B, KV * G, T};
	struct tensor qkv = take(F16, 4, in, 1), dout = take(F16, 3, to, 2), out = take(F16, 3, to, 0), right_out = take(F16, 3, to, 0);
	struct tensor dqkv = take(F16, 4, in, 0), right_dqkv = take(F16, 4, in, 0), lse = take(F32, 3, rows, 0), right_lse = take(F32, 3, rows, 0);
	struct tensor delta = take(F32, 3, rows, 0);
	struct op_attention_forward f = {.out = right_out, .lse = right_lse, .qkv = qkv, .sequence = T, .scale = 0.3};
	struct op_attention_backward b = {.dqkv = right_dqkv, .delta = delta, .dout = dout, .out = right_out, .lse = right_lse, .qkv = qkv,
					  .sequence = T, .scale = 0.3};
	struct attention_key key;
	memset(&key, 0, sizeof key);
	key.batch = B, key.tokens = T, key.groups = KV, key.heads = G, key.size = D, key.scale = 0.3, key.type = F16;
	op_attention_forward(dev, &f);
	op_attention_backward(dev, &b);
	for (int backward = 0; backward < 2; backward++) {
		struct cudnn_plan p = {.groups = groups, .workspace = T};
		(backward ? cudnn_graph_backward : cudnn_graph_forward)(&p.parts, NULL, &key, groups);
		assert_int_equal(p.parts.status, CUDNN_STATUS_SUCCESS);
		current = &p;
		calls = 0;
		struct cudnn_operands o = {.qkv = qkv.data, .out = out.data, .lse = lse.data};
		if (backward)
			o = (struct cudnn_operands){qkv.data, right_out.data, right_lse.data, dout.data, delta.data, dqkv.data};
		assert_int_equal(cudnn_plan_run(&p, NULL, &key, &o, &p), CUDNN_STATUS_SUCCESS);
		assert_int_equal(calls, groups ? B * KV / groups : 1);
		cudnn_parts_give_back(&p.parts, 0);
	}
	near(out, right_out);
	near(lse, right_lse);
	near(dqkv, right_dqkv);
	struct tensor all[] = {qkv, dout, out, right_out, dqkv, right_dqkv, lse, right_lse, delta};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i].data);
}

static void calls_lie_where_they_should(void **state)
{
	(void)state;
	struct dev_options options = {.threads = 1, .plain = true};
	struct dev_limits limits = {.rows = 64, .width = 512, .head_size = 16, .tensors = 1};
	struct error e;
	assert_true(dev_open(&dev, &backend_cpu, &options, &e));
	assert_true(dev_reserve(dev, &limits, &e));
	check_layout(2, 7, 3, 2, 8, 3);
	check_layout(2, 7, 3, 2, 8, 1);
	check_layout(2, 9, 4, 1, 8, 0);
	check_layout(2, 9, 4, 1, 8, 4);
	check_layout(3, 9, 4, 1, 16, 2);
	check_layout(2, 7, 1, 4, 8, 0);
	check_layout(2, 7, 1, 4, 8, 1);
	check_layout(1, 5, 1, 1, 8, 0);
	dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(calls_lie_where_they_should)};
	return cmocka_run_group_tests_name("cudnn layout", tests, NULL, NULL);
}

/* What ops take (dev/op_cost.h): bytes against the tensors and roles that the table of calls has, in every variant; FLOPs and
 * looked-up tables against formulas written by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "dev/op_cost.h"

static struct op_cost cost_of(const char *name, const struct call *c)
{
#define OP_ASKED(op_name)               \
	if (strcmp(name, #op_name) == 0) \
		return op_cost_##op_name(&c->op.op_name);
	OPS(OP_ASKED)
#undef OP_ASKED
	fail_msg("no op %s", name);
	return (struct op_cost){0};
}

/* Written or read once, added to or in place twice; a table that is looked up in counts `rows` of its rows; of sums and
 * totals, which are longer, the slots of the list are written and the first two added to; a part of attention reads the
 * queries of qkv alone, and of copied heads those count that the call names. */
static double bytes_by_role(struct call *c, const char *name, const char *table, int64_t rows)
{
	bool parts = strstr(name, "attention_part") != NULL;
	int64_t copied = strcmp(name, "heads_copy") == 0 ? c->op.heads_copy.count : 0;
	double sum = 0;
	for (int i = 0; i < c->count; i++) {
		const struct arg *a = &c->args[i];
		double bytes = (double)tensor_bytes(*a->at);
		if (a->same || a->role == ROOM)
			continue;
		if (table && strcmp(a->name, table) == 0)
			bytes = bytes / (double)a->at->shape[0] * (double)rows;
		if (a->role == IN && parts && strcmp(a->name, "qkv") == 0)
			bytes = bytes / (double)a->at->shape[2] * (double)(a->at->shape[2] - 2);
		if (copied > 0)
			bytes = bytes / (double)a->at->shape[2] * (double)copied / (a->role == INOUT ? 2 : 1);
		if (a->role == INOUT && strcmp(a->name, "qkv") == 0) /* queries and keys, as far as they are turned */
			bytes *= (double)(a->at->shape[2] - 1) / (double)a->at->shape[2] * (double)call_find(c, "table")->at->shape[1] /
				 (double)a->at->shape[3];
		if (a->role == INOUT && strcmp(a->name, "totals") == 0)
			bytes = 2 * sizeof(double);
		if (a->role == INOUT && strcmp(a->name, "sums") == 0)
			bytes = CALL_LIST * sizeof(double) / 2.0;
		sum += a->role == INOUT ? 2 * bytes : bytes;
	}
	return sum;
}

static const char *table_of(const char *name)
{
	if (strcmp(name, "embedding_forward") == 0 || strcmp(name, "position_forward") == 0 || strcmp(name, "rope") == 0)
		return "table";
	if (strcmp(name, "embedding_backward") == 0 || strcmp(name, "position_backward") == 0)
		return "dtable";
	return NULL;
}

/* Rows of the activation that such an op has. */
static int64_t looked_up(const char *name, struct call *c)
{
	if (strcmp(name, "rope") == 0)
		return c->op.rope.qkv.shape[0];
	return table_of(name) ? call_find(c, strstr(name, "forward") ? "out" : "dout")->at->shape[0] : 0;
}

static void bytes_are_those_of_the_tensors(void **state)
{
	int64_t calls = 0;
	for (int i = 0; i < op_cases_count; i++)
		for (int size = 0; size < op_cases[i].size_count; size++)
			for (unsigned v = 0; v < op_cases[i].variants; v++)
				for (enum dtype type = F64; type <= F16; type++) {
					const struct op_cases *o = &op_cases[i];
					struct call c;
					if (!case_taken(o, size, v) || size > 4 ||
					    !case_build(&c, o->build, type, type, o->sizes[size], v))
						continue;
					double want = bytes_by_role(&c, o->name, table_of(o->name), looked_up(o->name, &c));
					double have = cost_of(o->name, &c).bytes;
					if (fabs(have - want) > 1e-12 * want && !(strcmp(o->name, "adamw") == 0 && v & ADAMW_SKIPPED))
						fail_msg("%s, size %d, variant %u: %.0f bytes, its tensors have %.0f", o->name, size, v, have, want);
					call_finish(&c);
					calls++;
				}
	assert_true(calls > 500);
}

static void products_count_two_a_pair(void **state)
{
	for (unsigned v = 0; v < GEMM_STEP * GEMM_CASES; v++) {
		struct call c;
		if (!case_build(&c, case_gemm, F32, F32, (int64_t[]){33, 257, 100}, v))
			continue;
		struct op_cost cost = cost_of("gemm", &c);
		assert_true(cost.flops == 2.0 * 33 * 257 * 100 && cost.again == 0);
		call_finish(&c);
	}
}

/* B 2, T 33, KV 2, G 3, D 8: each product has half of T² pairs. */
static void attention_counts_the_causal_half(void **state)
{
	const int64_t size[] = {2, 33, 2, 3, 8};
	const double product = 2.0 * 2 * (33.0 * 33 / 2) * (2 * 3) * 8;
	struct call forward, backward;
	assert_true(case_build(&forward, case_attention_forward, F16, F16, size, 0));
	assert_true(case_build(&backward, case_attention_backward, F16, F16, size, 0));
	struct op_cost f = cost_of("attention_forward", &forward), b = cost_of("attention_backward", &backward);
	assert_true(f.flops == 2 * product && f.again == 0);
	assert_true(b.flops == 5 * product && b.again == product);
	call_finish(&forward);
	call_finish(&backward);
}

/* Four ranks that share sequences of 64 tokens as context parallelism cuts them: 8 chunks, rank r has r and 7 − r. */
static void parts_of_attention_are_equal_shares(void **state)
{
	enum { RANKS = 4, LENGTH = 16 };
	const int64_t size[] = {2, LENGTH, 2, 3, 8}, whole_size[] = {2, RANKS * LENGTH, 2, 3, 8};
	double forward[RANKS] = {0}, backward[RANKS] = {0};
	struct call whole, part, back;
	assert_true(case_build(&whole, case_attention_forward, F16, F16, whole_size, 0));
	assert_true(case_build(&part, case_attention_part_forward, F16, F16, size, 0));
	assert_true(case_build(&back, case_attention_part_backward, F16, F16, size, 0));
	for (int rank = 0; rank < RANKS; rank++)
		for (int from = 0; from < RANKS; from++) {
			struct span at[2];
			for (int i = 0; i < 2; i++)
				at[i] = (struct span){.first = (i ? from : rank) * LENGTH / 2, .length = LENGTH, .sequence = RANKS * LENGTH,
						      .jump = (RANKS - 1 - (i ? from : rank)) * LENGTH};
			part.op.attention_part_forward.dropout.span = back.op.attention_part_backward.dropout.span = at[0];
			part.op.attention_part_forward.keys = back.op.attention_part_backward.keys = at[1];
			forward[rank] += cost_of("attention_part_forward", &part).flops;
			backward[rank] += cost_of("attention_part_backward", &back).flops;
		}
	for (int rank = 0; rank < RANKS; rank++) {
		assert_true(forward[rank] * RANKS == cost_of("attention_forward", &whole).flops);
		assert_true(backward[rank] * 2 == forward[rank] * 5);
	}
	call_finish(&whole);
	call_finish(&part);
	call_finish(&back);
}

static void other_ops_count_no_flops(void **state)
{
	for (int i = 0; i < op_cases_count; i++) {
		const char *name = op_cases[i].name;
		bool product = strcmp(name, "gemm") == 0 || (strncmp(name, "attention", 9) == 0 && !strstr(name, "delta"));
		struct call c;
		assert_true(case_build(&c, op_cases[i].build, F32, F32, op_cases[i].sizes[1], 0));
		assert_true((cost_of(name, &c).flops > 0) == product);
		call_finish(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_those_of_the_tensors),
		cmocka_unit_test(products_count_two_a_pair),
		cmocka_unit_test(attention_counts_the_causal_half),
		cmocka_unit_test(parts_of_attention_are_equal_shares),
		cmocka_unit_test(other_ops_count_no_flops),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

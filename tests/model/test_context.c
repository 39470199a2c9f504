/* What a context rank has: its share of the tokens and of the causal work, and memory that does not grow with the number of ranks:
 * a sequence c times longer over c ranks keeps the activations of one rank, and takes the same scratch memory for any c > 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/gpt.h"
#include "model/recompute.h"

enum { LENGTH = 64, MOST = 8, BATCH = 2 };

static const struct model_settings model = {
	.layers = 3, .hidden = 48, .heads = 6, .kv_heads = 2, .head_size = 8, .ffn = 192, .vocab = 257, .norm = NORM_LAYER,
	.norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .bias = true, .qkv_bias = true,
};

/* Every token is on one rank, and each rank's queries see as many keys. */
static void shares_are_whole_and_even(void **state)
{
	struct model_settings m = model;
	for (int ranks = 1; ranks <= MOST; ranks++)
		for (int64_t half = 1; half <= 9; half += 4) {
			int seen[2 * 9 * MOST] = {0};
			m.sequence = 2 * half * ranks;
			struct env env = {.model = &m, .context_size = ranks, .length = 2 * half};
			for (int rank = 0; rank < ranks; rank++) {
				struct span queries = env_share(&env, rank, 4);
				int64_t pairs = 0, before = -1;
				assert_int_equal(queries.sample, 4);
				for (int64_t t = 0; t < env.length; t++) {
					int64_t token = span_place(&queries, t);
					assert_true(token > before && token < m.sequence);
					seen[before = token]++;
					assert_int_equal(span_before(&queries, token), t);
					for (int from = 0; from < ranks; from++) {
						struct span keys = env_share(&env, from, 0);
						int64_t count = 0;
						for (int64_t u = 0; u < env.length; u++)
							count += span_place(&keys, u) <= token;
						assert_int_equal(span_before(&keys, token + 1), count);
						pairs += count;
					}
				}
				/* Σ over tokens of t + 1 is T(T + 1)/2. */
				assert_int_equal(pairs * ranks, m.sequence * (m.sequence + 1) / 2);
			}
			for (int64_t t = 0; t < m.sequence; t++)
				assert_int_equal(seen[t], 1);
		}
}

static void measure(struct memory *memory, int context, int tensor, bool sequence, enum recompute_choice choice, enum dtype type)
{
	struct model_settings m = model;
	struct param_table params;
	struct gpt gpt;
	unsigned kept[3] = {recompute_kept(choice), recompute_kept(choice), recompute_kept(choice)};
	m.sequence = (int64_t)context * LENGTH;
	memory_measure(memory);
	param_table_init(&params, &m, type, tensor, 0);
	gpt_build(&gpt, &(struct gpt_options){
		.model = &m, .params = &params, .tensor_size = tensor, .context_size = context, .context_rank = context - 1, .stages = 1,
		.chunks = 1, .layers_of = &m.layers, .batch = BATCH, .sequence = sequence, .kept = kept, .slots = 2, .inputs = 2,
	}, memory);
	gpt_finish(&gpt);
	param_table_finish(&params);
}

static size_t taken(int64_t elements, enum dtype type)
{
	return ((size_t)elements * dtype_size(type) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* To have attention's output again the keys and values go round again. */
static void attention_again_moves_keys(void **state)
{
	for (int context = 1; context <= MOST; context *= 2) {
		struct model_settings m = model;
		struct param_table params;
		struct memory memory;
		struct gpt gpt;
		struct block_row rows[BLOCK_TENSORS];
		m.sequence = (int64_t)context * LENGTH;
		memory_measure(&memory);
		param_table_init(&params, &m, F16, 2, 0);
		gpt_build(&gpt, &(struct gpt_options){
			.model = &m, .params = &params, .tensor_size = 2, .context_size = context, .stages = 1, .chunks = 1,
			.layers_of = &m.layers, .batch = BATCH, .slots = 1, .inputs = 1,
		}, &memory);
		block_rows(rows, &gpt.chunks[0].blocks[0]);
		double kv = BATCH * LENGTH * 2.0 * (double)(model.kv_heads / 2 * model.head_size) * 2; /* bytes */
		assert_true(rows[BLOCK_A].moved == (context - 1) * kv);
		/* Two products over the causal half of the whole sequence, for the queries that are here. */
		assert_true(rows[BLOCK_A].flops == 2.0 * BATCH * LENGTH * (double)m.sequence * (double)(m.heads / 2 * m.head_size));
		gpt_finish(&gpt);
		param_table_finish(&params);
	}
}

static void memory_does_not_grow(void **state)
{
	for (enum dtype type = F32; type <= F16; type++)
		for (unsigned k = 0; k < 12; k++) {
			int tensor = k % 2 ? 2 : 1;
			bool sequence = k / 2 % 2;
			enum recompute_choice choice = (enum recompute_choice)(k / 4);
			struct memory one, two, more;
			measure(&one, 1, tensor, sequence, choice, type);
			measure(&two, 2, tensor, sequence, choice, type);
			int64_t kv = BATCH * LENGTH * 2 * model.kv_heads * model.head_size / tensor;
			int64_t q = BATCH * LENGTH * model.heads * model.head_size / tensor;
			assert_int_equal(two.arena[MEMORY_SCRATCH].used,
					 one.arena[MEMORY_SCRATCH].used + 2 * taken(kv, type) + 3 * taken(kv, F32) + taken(q, F32));
			for (int context = 2; context <= MOST; context *= 2) {
				measure(&more, context, tensor, sequence, choice, type);
				assert_int_equal(more.arena[MEMORY_ACTIVATIONS].used, one.arena[MEMORY_ACTIVATIONS].used);
				assert_int_equal(more.arena[MEMORY_SCRATCH].used, two.arena[MEMORY_SCRATCH].used);
				assert_int_equal(more.arena[MEMORY_COMMUNICATION].used, one.arena[MEMORY_COMMUNICATION].used);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_are_whole_and_even),
		cmocka_unit_test(memory_does_not_grow),
		cmocka_unit_test(attention_again_moves_keys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

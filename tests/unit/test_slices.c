/* Buckets and slices without running anything: where parameters lie, what each data rank has of them, how many bytes they
 * take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/gpt.h"
#include "train/optim.h"

/* Sizes that leave nothing to pad: 8 slices of a multiple of 128 divide each parameter. */
static const struct model_settings even = {
	.layers = 6, .hidden = 1024, .heads = 16, .kv_heads = 16, .head_size = 64, .ffn = 4096, .sequence = 128, .vocab = 1024,
	.norm = NORM_LAYER, .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .bias = true, .qkv_bias = true,
};

/* And some that do not. */
static const struct model_settings odd = {
	.layers = 6, .hidden = 20, .heads = 4, .kv_heads = 2, .head_size = 5, .ffn = 36, .sequence = 7, .vocab = 300,
	.norm = NORM_RMS, .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .qkv_bias = true, .tied = true,
};

/* One rank of a run, its memory measured. */
struct rig {
	struct param_table params;
	struct memory memory;
	struct gpt gpt;
	struct slices slices;
	struct optim optim;
	struct state state;
};

/* Where a rank stands; of what is left out there is one. */
struct place {
	int tensor, tensor_rank;
	int stage, stages, chunks;
	int slices, slice;
};

static int or_one(int n)
{
	return n > 0 ? n : 1;
}

static void build(struct rig *r, const struct model_settings *m, enum dtype dtype, struct place at)
{
	int64_t layers_of[8];
	int tensor = or_one(at.tensor), stages = or_one(at.stages), chunks = or_one(at.chunks);
	for (int i = 0; i < stages * chunks; i++)
		layers_of[i] = m->layers / (stages * chunks);
	memory_measure(&r->memory);
	param_table_init(&r->params, m, dtype, tensor, at.tensor_rank);
	r->params.slices = or_one(at.slices);
	gpt_build(&r->gpt, &(struct gpt_options){
		.model = m, .params = &r->params, .tensor_size = tensor, .tensor_rank = at.tensor_rank, .stage = at.stage, .stages = stages,
		.chunks = chunks, .layers_of = layers_of, .batch = 1, .slots = 1, .inputs = 1,
	}, &r->memory);
	slices_init(&r->slices, &r->params, at.slice);
	optim_build(&r->optim, &(struct optim_options){.params = &r->params, .slices = &r->slices}, &r->memory);
	state_init(&r->state);
	optim_add_state(&r->optim, &r->state);
}

static void take_apart(struct rig *r)
{
	state_finish(&r->state);
	optim_finish(&r->optim);
	slices_finish(&r->slices);
	gpt_finish(&r->gpt);
	param_table_finish(&r->params);
}

/* 2 + 4 + 12/d bytes a parameter in 16 bits, 4 + 4 + 8/d in FP32, whose masters are the weights. */
static void test_bytes(void **state)
{
	for (int d = 1; d <= 8; d *= 2)
		for (int wide = 0; wide < 2; wide++) {
			struct rig r;
			build(&r, &even, wide ? F32 : F16, (struct place){.slices = d});
			size_t P = (size_t)param_total(&r.params);
			assert_int_equal(r.memory.arena[MEMORY_WEIGHTS].used, (wide ? 4 : 2) * P);
			assert_int_equal(r.memory.arena[MEMORY_GRADIENTS].used, 4 * P);
			assert_int_equal(r.memory.arena[MEMORY_OPTIMIZER].used, (wide ? 8 : 12) * P / (size_t)d);
			take_apart(&r);
		}
}

/* A parameter lies at the same place of a bucket of the same size wherever layers are, a tied head's copy excepted. */
static void test_layout(void **state)
{
	static const int meshes[][2] = {{2, 1}, {2, 3}, {3, 1}, {6, 1}};
	for (int tied = 0; tied < 2; tied++)
		for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
			for (int stage = 0; stage < meshes[i][0]; stage++) {
				struct rig one, r;
				struct model_settings m = odd;
				m.tied = tied;
				build(&one, &m, F16, (struct place){.tensor = 2, .tensor_rank = 1, .slices = 3, .slice = 1});
				build(&r, &m, F16, (struct place){.tensor = 2, .tensor_rank = 1, .stage = stage, .stages = meshes[i][0],
								  .chunks = meshes[i][1], .slices = 3, .slice = 1});
				for (int k = 0; k < r.params.count; k++) {
					const struct param *p = &r.params.params[k], *q = &one.params.params[k];
					if (!p->here || r.params.buckets[p->bucket].copy)
						continue;
					assert_int_equal(p->at, q->at);
					assert_int_equal(p->at % PARAM_ALIGN, 0);
					const struct param_bucket *b = &r.params.buckets[p->bucket];
					assert_true(tensor_same_shape(b->weights, one.params.buckets[q->bucket].weights));
					assert_int_equal(b->whole, one.params.buckets[q->bucket].whole);
					assert_int_equal(p->split == PARAM_WHOLE, p->at < b->whole);
				}
				take_apart(&one);
				take_apart(&r);
			}
}

/* Between them all ranks have every element once: as pieces of slices, and as boxes of the state, padded rows in none. */
static void test_cover(void **state)
{
	for (int d = 1; d <= 7; d++) {
		struct rig r;
		build(&r, &odd, F16, (struct place){.tensor = 2, .tensor_rank = 1, .slices = d});
		int count = r.params.count;
		char **pieces = calloc((size_t)count, sizeof *pieces), **boxes = calloc((size_t)count, sizeof *boxes);
		assert_true(pieces && boxes);
		for (int i = 0; i < count; i++) {
			pieces[i] = calloc((size_t)tensor_count(r.params.params[i].weight), 1);
			boxes[i] = calloc((size_t)tensor_count(r.params.params[i].weight), 1);
			assert_true(pieces[i] && boxes[i]);
		}
		take_apart(&r);
		for (int rank = 0; rank < d; rank++) {
			build(&r, &odd, F16, (struct place){.tensor = 2, .tensor_rank = 1, .slices = d, .slice = rank});
			for (int i = 0; i < r.slices.pieces_count; i++) {
				const struct slices_piece *p = &r.slices.pieces[i];
				for (int64_t k = p->begin; k < p->begin + p->count; k++)
					pieces[p->param - r.params.params][k]++;
			}
			for (int i = 0; i < r.state.count; i++) {
				const struct state_entry *e = &r.state.entries[i];
				if (strncmp(e->name, "m/", 2) != 0)
					continue;
				const struct param *p = param_find(&r.params, e->name + 2);
				assert_int_equal(e->owner, p->owner);
				/* Along the runs of a box that is contiguous in the parameter's box: its first element's place there. */
				int64_t first = 0;
				for (int k = 0; k < p->dims; k++)
					first = first * (p->box.end[k] - p->box.begin[k]) + e->box.begin[k] - p->box.begin[k];
				for (int64_t k = 0; k < box_count(&e->box); k++)
					boxes[p - r.params.params][first + k]++;
			}
			if (rank < d - 1)
				take_apart(&r);
		}
		for (int i = 0; i < count; i++) {
			const struct param *p = &r.params.params[i];
			for (int64_t k = 0; k < tensor_count(p->weight); k++) {
				assert_int_equal(pieces[i][k], 1);
				assert_int_equal(boxes[i][k], k < box_count(&p->box));
			}
			free(pieces[i]);
			free(boxes[i]);
		}
		take_apart(&r);
		free(pieces);
		free(boxes);
	}
}

/* Counts the elements of a run of a box in a parameter's own array. */
static void count_run(void *context, int64_t global, int64_t local, int64_t count)
{
	for (int64_t i = global; i < global + count; i++)
		((char *)context)[i]++;
}

/* Of 8 × 64 × 8 ranks each element of the model is saved by one: tied and untied, with most tensor ranks' rows of the
 * vocabulary padding alone, and with layers that one data rank's slice cuts. */
static void test_owners(void **state)
{
	enum { DATA = 8, TENSOR = 64, STAGES = 8 };
	struct model_settings m = {
		.layers = STAGES, .hidden = 64, .heads = TENSOR, .kv_heads = TENSOR, .head_size = 2, .ffn = 2 * TENSOR, .sequence = 5,
		.vocab = 300, .norm = NORM_LAYER, .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU, .bias = true, .qkv_bias = true,
	};
	for (int tied = 0; tied < 2; tied++) {
		struct param_table table;
		m.tied = tied;
		param_table_init(&table, &m, F16, TENSOR, 0);
		char **owners = calloc((size_t)table.count, sizeof *owners);
		assert_non_null(owners);
		for (int i = 0; i < table.count; i++) {
			struct box whole = box_whole(table.params[i].dims, table.params[i].shape);
			owners[i] = calloc((size_t)box_count(&whole), 1);
			assert_non_null(owners[i]);
		}
		for (int rank = 0; rank < DATA * TENSOR * STAGES; rank++) {
			struct rig r;
			build(&r, &m, F16, (struct place){
				.tensor = TENSOR, .tensor_rank = rank % TENSOR, .slices = DATA, .slice = rank / TENSOR % DATA,
				.stages = STAGES, .stage = rank / TENSOR / DATA,
			});
			for (int i = 0; i < r.state.count; i++) {
				const struct state_entry *e = &r.state.entries[i];
				if (!e->owner || strncmp(e->name, "weight/", 7) != 0)
					continue;
				const struct param *p = param_find(&r.params, e->name + 7);
				box_runs(&e->box, p->shape, count_run, owners[p - r.params.params]);
			}
			take_apart(&r);
		}
		for (int i = 0; i < table.count; i++) {
			struct box whole = box_whole(table.params[i].dims, table.params[i].shape);
			for (int64_t k = 0; k < box_count(&whole); k++)
				if (owners[i][k] != 1)
					fail_msg("element %lld of %s has %d owners", (long long)k, table.params[i].name, owners[i][k]);
			free(owners[i]);
		}
		free(owners);
		param_table_finish(&table);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_cover),
		cmocka_unit_test(test_owners),
	};
	return cmocka_run_group_tests_name("slices", tests, NULL, NULL);
}

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

static void build(struct rig *r, const struct model_settings *m, enum dtype dtype, int tensor, int stage, int stages, int chunks,
		  int slices, int rank)
{
	int64_t layers_of[8];
	for (int i = 0; i < stages * chunks; i++)
		layers_of[i] = m->layers / (stages * chunks);
	memory_measure(&r->memory);
	param_table_init(&r->params, m, dtype, tensor, tensor - 1);
	r->params.slices = slices;
	gpt_build(&r->gpt, &(struct gpt_options){
		.model = m, .params = &r->params, .tensor_size = tensor, .tensor_rank = tensor - 1, .stage = stage, .stages = stages,
		.chunks = chunks, .layers_of = layers_of, .batch = 1, .slots = 1, .inputs = 1,
	}, &r->memory);
	slices_init(&r->slices, &r->params, rank);
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
			build(&r, &even, wide ? F32 : F16, 1, 0, 1, 1, d, 0);
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
				build(&one, &m, F16, 2, 0, 1, 1, 3, 1);
				build(&r, &m, F16, 2, stage, meshes[i][0], meshes[i][1], 3, 1);
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
		build(&r, &odd, F16, 2, 0, 1, 1, d, 0);
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
			build(&r, &odd, F16, 2, 0, 1, 1, d, rank);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_cover),
	};
	return cmocka_run_group_tests_name("slices", tests, NULL, NULL);
}

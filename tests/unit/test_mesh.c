#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "par/groups.h"

static struct parallel_settings settings(int64_t data, int64_t tensor, int64_t pipeline)
{
	return (struct parallel_settings){.data = data, .tensor = tensor, .context = 1, .pipeline = pipeline, .stages = "auto"};
}

static bool make(struct mesh *m, int64_t data, int64_t tensor, int64_t pipeline, int rank, int world, struct error *e)
{
	struct parallel_settings s = settings(data, tensor, pipeline);
	*e = (struct error){0};
	return mesh_init(m, &s, rank, world, "mtrain", "small.ini", e);
}

/* The order that the design names, worked out by hand for 2×2×2: tensor fastest, then data, then pipeline. */
static void test_order(void **state)
{
	static const int expected[8][3] = {/* tensor, data, pipeline */
					   {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0},
					   {0, 0, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 1}};
	struct error e;
	struct mesh m;
	for (int rank = 0; rank < 8; rank++) {
		assert_true(make(&m, 0, 2, 2, rank, 8, &e));
		assert_int_equal(m.rank, rank);
		assert_int_equal(m.at[AXIS_TENSOR], expected[rank][0]);
		assert_int_equal(m.at[AXIS_CONTEXT], 0);
		assert_int_equal(m.at[AXIS_DATA], expected[rank][1]);
		assert_int_equal(m.at[AXIS_PIPELINE], expected[rank][2]);
	}
}

/* Context ranks are between tensor and data ranks: 2×2×2×2, by hand. */
static void test_context(void **state)
{
	struct parallel_settings s = settings(0, 2, 2);
	struct error e = {0};
	struct mesh m;
	s.context = 2;
	for (int rank = 0; rank < 16; rank++) {
		assert_true(mesh_init(&m, &s, rank, 16, "mtrain", "small.ini", &e));
		assert_int_equal(m.at[AXIS_TENSOR], rank & 1);
		assert_int_equal(m.at[AXIS_CONTEXT], rank >> 1 & 1);
		assert_int_equal(m.at[AXIS_DATA], rank >> 2 & 1);
		assert_int_equal(m.at[AXIS_PIPELINE], rank >> 3);
		assert_int_equal(mesh_copy(&m), rank >> 1 & 3);
		assert_int_equal(mesh_rank_of(&m, m.at), rank);
	}
	assert_false(mesh_init(&m, &s, 0, 7, "mtrain", "small.ini", &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_string_equal(e.text, "[parallel] data = auto, tensor = 2, context = 2, pipeline = 2 needs a multiple of 8 ranks, there "
			    "are 7: start it as `mpirun -n 8 mtrain --config small.ini` or `srun --mpi=pmix -n 8 mtrain --config small.ini`");
	s.data = 3;
	assert_false(mesh_init(&m, &s, 0, 16, "mtrain", "small.ini", &e));
	assert_non_null(strstr(e.text, "context = 2, pipeline = 2 needs 24 ranks, there are 16"));
	s.context = 1 << 30;
	assert_false(mesh_init(&m, &s, 0, 16, "mtrain", "small.ini", &e)); /* nothing overflows */
	assert_non_null(strstr(e.text, "more than 2147483647 ranks"));
}

/* Every way to cut 4096 ranks in three: rank and place are inverse. */
static void test_4096(void **state)
{
	enum { WORLD = 4096 };
	struct error e;
	struct mesh m;
	for (int tensor = 1; tensor <= WORLD; tensor *= 2)
		for (int pipeline = 1; tensor * pipeline <= WORLD; pipeline *= 2) {
			int data = WORLD / tensor / pipeline;
			static unsigned char seen[WORLD];
			memset(seen, 0, sizeof seen);
			assert_true(make(&m, tensor % 2 ? data : 0, tensor, pipeline, WORLD - 1, WORLD, &e));
			assert_int_equal(mesh_world(&m), WORLD);
			for (int p = 0; p < pipeline; p++)
				for (int d = 0; d < data; d++)
					for (int t = 0; t < tensor; t++) {
						int at[AXES] = {[AXIS_TENSOR] = t, [AXIS_DATA] = d, [AXIS_PIPELINE] = p};
						int rank = mesh_rank_of(&m, at), back[AXES];
						if (rank != t + tensor * (d + data * p) || seen[rank])
							fail_msg("rank %d at t %d d %d p %d", rank, t, d, p);
						seen[rank] = 1;
						mesh_place(&m, rank, back);
						assert_memory_equal(at, back, sizeof at);
					}
		}
}

/* The mesh's groups, from the axes along which their ranks differ: the n-th rank of one is n strides behind its first. */
static void test_groups(void **state)
{
	static const struct {
		const char *name;
		int first, last; /* axes */
	} groups[] = {
		{"world", AXIS_TENSOR, AXIS_PIPELINE}, {"tensor", AXIS_TENSOR, AXIS_TENSOR}, {"context", AXIS_CONTEXT, AXIS_CONTEXT},
		{"data", AXIS_CONTEXT, AXIS_DATA}, {"pipeline", AXIS_PIPELINE, AXIS_PIPELINE},
	};
	static const int meshes[][AXES] = {{64, 1, 8, 8}, {8, 8, 8, 8}, {3, 2, 5, 7}, {1, 1, 1, 1}};
	for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
		struct mesh m = {0};
		memcpy(m.size, meshes[k], sizeof m.size);
		for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
			int stride = 1, size = 1, world = mesh_world(&m);
			int *members = calloc((size_t)world, sizeof *members); /* by the group's first rank */
			assert_non_null(members);
			for (int axis = 0; axis <= groups[g].last; axis++)
				*(axis < groups[g].first ? &stride : &size) *= m.size[axis];
			assert_int_equal(groups_stride(&m, groups[g].name), stride);
			for (m.rank = 0; m.rank < world; m.rank++) {
				int number, ranks;
				mesh_place(&m, m.rank, m.at);
				groups_place(&m, groups[g].name, &number, &ranks);
				assert_int_equal(ranks, size);
				int first = m.rank - number * stride;
				assert_int_equal(members[first], number); /* in the order of ranks, none twice */
				members[first]++;
			}
			for (int first = 0; first < world; first++)
				assert_true(members[first] == 0 || members[first] == size);
			free(members);
		}
		for (m.rank = 0; m.rank < mesh_world(&m); m.rank++) {
			int number, ranks;
			mesh_place(&m, m.rank, m.at);
			groups_place(&m, "embedding", &number, &ranks);
			assert_int_equal(ranks, 2);
			assert_int_equal(number, m.at[AXIS_PIPELINE] > 0);
		}
	}
}

static void test_world_wrong(void **state)
{
	struct error e;
	struct mesh m;
	assert_false(make(&m, 2, 1, 2, 0, 1, &e));
	assert_int_equal(e.code, CODE_USAGE);
	assert_string_equal(e.text, "[parallel] data = 2, tensor = 1, pipeline = 2 needs 4 ranks, there is only one: start it as "
			    "`mpirun -n 4 mtrain --config small.ini` or `srun --mpi=pmix -n 4 mtrain --config small.ini`");
	assert_false(make(&m, 2, 1, 2, 0, 8, &e));
	assert_non_null(strstr(e.text, "there are 8"));
	assert_non_null(strstr(e.text, "mpirun -n 4 "));

	/* With data = auto any multiple will do: the largest that these ranks fill, else the smallest. */
	assert_false(make(&m, 0, 2, 2, 0, 11, &e));
	assert_non_null(strstr(e.text, "needs a multiple of 4 ranks, there are 11"));
	assert_non_null(strstr(e.text, "`mpirun -n 8 mtrain --config small.ini`"));
	assert_false(make(&m, 0, 2, 2, 0, 3, &e));
	assert_non_null(strstr(e.text, "`srun --mpi=pmix -n 4 mtrain --config small.ini`"));

	assert_false(make(&m, 1 << 20, 1 << 20, 1 << 20, 0, 1, &e)); /* nothing overflows */
	assert_int_equal(e.code, CODE_USAGE);
}

static bool stages_are(int stages, int64_t layers, double head_cost, const char *text, const int64_t *expected)
{
	struct error e = {0};
	int64_t got[16];
	assert_true(mesh_stages(got, stages, 1, layers, head_cost, text, &e));
	return memcmp(got, expected, (size_t)stages * sizeof *got) == 0;
}

static void test_stages(void **state)
{
	assert_true(stages_are(1, 5, 0.5, "auto", (int64_t[]){5}));
	assert_true(stages_are(4, 8, 0, "auto", (int64_t[]){2, 2, 2, 2}));
	assert_true(stages_are(4, 30, 0, "auto", (int64_t[]){8, 8, 7, 7}));
	assert_true(stages_are(4, 38, 1.5, "auto", (int64_t[]){10, 10, 10, 8}));
	assert_true(stages_are(4, 9, 0.3, "auto", (int64_t[]){3, 2, 2, 2}));
	assert_true(stages_are(2, 6, 5, "auto", (int64_t[]){5, 1}));
	assert_true(stages_are(3, 3, 9, "auto", (int64_t[]){1, 1, 1}));
	assert_true(stages_are(4, 38, 0, "9,10,10,9", (int64_t[]){9, 10, 10, 9}));
	assert_true(stages_are(3, 6, 0, " 1 , 4,1 ", (int64_t[]){1, 4, 1}));
	assert_true(stages_are(1, 6, 0, "6", (int64_t[]){6}));

	struct error e = {0};
	int64_t got[4] = {0};
	assert_true(mesh_stages(got, 2, 2, 9, 1.5, "auto", &e));
	assert_memory_equal(got, ((int64_t[]){3, 3, 2, 1}), sizeof got);
	assert_true(mesh_stages(got, 2, 2, 7, 0, "1,2,3,1", &e));
	assert_memory_equal(got, ((int64_t[]){1, 2, 3, 1}), sizeof got);
	assert_true(mesh_stages(got, 2, 2, 2, 0, "0,1,1,0", &e)); /* embedding and head alone */
	assert_memory_equal(got, ((int64_t[]){0, 1, 1, 0}), sizeof got);
	assert_false(mesh_stages(got, 2, 2, 7, 0, "1,0,5,1", &e));
	assert_non_null(strstr(e.text, "stage 1 has no layer"));
	assert_false(mesh_stages(got, 2, 2, 7, 0, "-1,2,5,1", &e));
	assert_false(mesh_stages(got, 4, 1, 7, 0, "0,2,5,0", &e));
	assert_false(mesh_stages(got, 3, 2, 3, 0, "0,1,1,1,0", &e));
	assert_false(mesh_stages(got, 3, INT_MAX, 5, 0, "0,1", &e));
	assert_false(mesh_stages(got, 2, 3, 5, 0, "auto", &e));
	assert_non_null(strstr(e.text, "parallel.chunks = 3 on parallel.pipeline = 2 ranks with model.layers = 5 leaves a chunk "
				       "without a layer: use at most 2 chunks"));
	assert_false(mesh_stages(got, 3, INT_MAX, 5, 0, "auto", &e)); /* nothing overflows, nothing is written */
	assert_false(mesh_stages(got, 2, 2, 7, 0, "1,2,3", &e));
	assert_non_null(strstr(e.text, "names 3 stages, but parallel.pipeline = 2 times parallel.chunks = 2 are 4"));
	assert_false(mesh_stages(got, 2, 2, 7, 0, "1,2,3,1,0", &e));
}

/* The least possible maximum over all splits of `layers` into `stages`, by trying them all. */
static double best(int stages, int64_t layers, double load, double head_cost)
{
	double least = 1e9;
	if (stages == 1) {
		double last = (double)layers + head_cost;
		return last > load ? last : load;
	}
	for (int64_t here = 1; here <= layers - (stages - 1); here++) {
		double rest = best(stages - 1, layers - here, (double)here > load ? (double)here : load, head_cost);
		least = rest < least ? rest : least;
	}
	return least;
}

static void test_stages_are_best(void **state)
{
	static const double costs[] = {0, 0.25, 0.5, 1, 1.75, 3, 7.5};
	struct error e;
	int64_t got[5];
	for (int stages = 1; stages <= 5; stages++)
		for (int64_t layers = stages; layers <= 12; layers++)
			for (size_t k = 0; k < sizeof costs / sizeof *costs; k++) {
				double most = 0;
				int64_t sum = 0;
				assert_true(mesh_stages(got, stages, 1, layers, costs[k], "auto", &e));
				for (int i = 0; i < stages; i++) {
					double load = (double)got[i] + (i == stages - 1 ? costs[k] : 0);
					most = load > most ? load : most;
					sum += got[i];
					assert_true(got[i] >= 1);
				}
				for (int i = 1; i < stages - 1; i++) /* ties go to earlier stages */
					assert_true(got[i] <= got[i - 1] && got[i] >= got[i - 1] - 1);
				assert_int_equal(sum, layers);
				assert_true(most == best(stages, layers, 0, costs[k]));
			}
}

static void test_stages_wrong(void **state)
{
	static const struct {
		int stages;
		int64_t layers;
		const char *text, *says;
	} cases[] = {
		{4, 3, "auto", "parallel.pipeline = 4 with model.layers = 3 leaves a stage without a layer: use at most 3 stages"},
		{3, 6, "3,0,3", "parallel.stages = 3,0,3: stage 1 has no layer"},
		{3, 6, "3,-1,4", "stage 1 has no layer"},
		{3, 6, "3,3", "names 2 stages, but parallel.pipeline = 3"},
		{2, 6, "3,2,1", "names 3 stages, but parallel.pipeline = 2"},
		{2, 6, "3,2", "have 5 layers together, but model.layers = 6"},
		{2, 6, "3,4", "the stages up to 1 have more than the model's 6 layers"},
		{2, 6, "", "stage 0 is not a whole number"},
		{2, 6, "3,,3", "stage 1 is not a whole number"},
		{2, 6, "3,3,", "stage 2 is not a whole number"},
		{2, 6, "3;3", "stage 0 is not a whole number"},
		{2, 6, "00000000000000000000000000000000000000000000000003,3", "stage 0 is not a whole number"},
		{2, 6, "9223372036854775807,9223372036854775807", "more than the model's 6 layers"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct error e = {0};
		int64_t got[16];
		assert_false(mesh_stages(got, cases[i].stages, 1, cases[i].layers, 0, cases[i].text, &e));
		assert_int_equal(e.code, CODE_USAGE);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),        cmocka_unit_test(test_context),      cmocka_unit_test(test_4096),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_world_wrong),  cmocka_unit_test(test_stages),
		cmocka_unit_test(test_stages_are_best), cmocka_unit_test(test_stages_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "par/mesh.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* One line that says how many ranks are needed and how to start them. */
static bool world_wrong(const struct parallel_settings *s, int64_t needed, int world, const char *program,
			const char *config, struct error *e)
{
	char data[32] = "auto", context[48] = "", there[64] = "there is only one";
	if (s->data)
		snprintf(data, sizeof data, "%lld", (long long)s->data);
	if (s->context > 1)
		snprintf(context, sizeof context, "context = %lld, ", (long long)s->context);
	if (world != 1)
		snprintf(there, sizeof there, "there are %d", world);
	return error_set(e, CODE_USAGE,
			 "[parallel] data = %s, tensor = %lld, %spipeline = %lld needs %s%lld ranks, %s: start it as "
			 "`mpirun -n %lld %s --config %s` or `srun --mpi=pmix -n %lld %s --config %s`",
			 data, (long long)s->tensor, context, (long long)s->pipeline, s->data ? "" : "a multiple of ",
			 (long long)(s->data ? needed : s->tensor * s->context * s->pipeline), there, (long long)needed,
			 program, config, (long long)needed, program, config);
}

bool mesh_init(struct mesh *m, const struct parallel_settings *s, int rank, int world, const char *program,
	       const char *config, struct error *e)
{
	const int64_t sizes[] = {s->tensor, s->context, s->pipeline, s->data ? s->data : 1};
	int64_t model, all = 1; /* ranks that share a sample; all ranks */
	check(s->tensor >= 1 && s->context >= 1 && s->pipeline >= 1 && s->data >= 0 && rank >= 0 && rank < world);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (sizes[i] > INT_MAX / all)
			return error_set(e, CODE_USAGE, "[parallel] data = %lld, tensor = %lld, context = %lld, pipeline = %lld: "
					 "more than %d ranks", (long long)s->data, (long long)s->tensor, (long long)s->context,
					 (long long)s->pipeline, INT_MAX);
		all *= sizes[i];
	}
	model = all / (s->data ? s->data : 1);
	if (s->data && s->data * model != world)
		return world_wrong(s, s->data * model, world, program, config, e);
	if (world % model != 0) /* the largest mesh that these ranks could fill, or the smallest there is */
		return world_wrong(s, world > model ? world / model * model : model, world, program, config, e);
	*m = (struct mesh){.rank = rank};
	m->size[AXIS_TENSOR] = (int)s->tensor;
	m->size[AXIS_CONTEXT] = (int)s->context;
	m->size[AXIS_DATA] = (int)(world / model);
	m->size[AXIS_PIPELINE] = (int)s->pipeline;
	mesh_place(m, rank, m->at);
	return true;
}

int mesh_world(const struct mesh *m)
{
	int world = 1;
	for (int axis = 0; axis < AXES; axis++)
		world *= m->size[axis];
	return world;
}

int mesh_copy(const struct mesh *m)
{
	return m->at[AXIS_CONTEXT] + m->size[AXIS_CONTEXT] * m->at[AXIS_DATA];
}

int mesh_rank_of(const struct mesh *m, const int at[AXES])
{
	int rank = 0;
	for (int axis = AXES - 1; axis >= 0; axis--) {
		check(at[axis] >= 0 && at[axis] < m->size[axis]);
		rank = rank * m->size[axis] + at[axis];
	}
	return rank;
}

void mesh_place(const struct mesh *m, int rank, int at[AXES])
{
	check(rank >= 0 && rank < mesh_world(m));
	for (int axis = 0; axis < AXES; axis++) {
		at[axis] = rank % m->size[axis];
		rank /= m->size[axis];
	}
}

__attribute__((format(printf, 3, 4)))
static bool stages_wrong(struct error *e, const char *text, const char *format, ...)
{
	char reason[160];
	va_list args;
	va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	va_end(args);
	return error_set(e, CODE_USAGE, "parallel.stages = %s: %s", text, reason);
}

static bool stages_from_list(int64_t *layers_of, int pipeline, int chunks, int64_t layers, const char *text, struct error *e)
{
	int stages = pipeline * chunks;
	int64_t sum = 0;
	int count = 0;
	for (const char *p = text;; p++) {
		char item[32];
		size_t n = 0;
		while (isspace((unsigned char)*p))
			p++;
		while (*p && *p != ',' && n + 1 < sizeof item)
			item[n++] = *p++;
		while (n > 0 && isspace((unsigned char)item[n - 1]))
			n--;
		item[n] = '\0';
		int64_t here;
		if (!text_to_count(item, &here) || (*p && *p != ','))
			return stages_wrong(e, text, "stage %d is not a whole number; write auto, or one number a "
					    "stage, as in 9,10,10,9", count);
		bool end = chunks > 1 && (count == 0 || count == stages - 1);
		if (here < (end ? 0 : 1))
			return stages_wrong(e, text, end ? "stage %d has fewer layers than none" :
					    "stage %d has no layer; each needs at least one", count);
		if (here > layers - sum)
			return stages_wrong(e, text, "the stages up to %d have more than the model's %lld layers",
					    count, (long long)layers);
		sum += here;
		if (count < stages)
			layers_of[count] = here;
		count++;
		if (!*p)
			break;
	}
	if (count != stages && chunks > 1)
		return stages_wrong(e, text, "names %d stages, but parallel.pipeline = %d times parallel.chunks = %d are %d",
				    count, pipeline, chunks, stages);
	if (count != stages)
		return stages_wrong(e, text, "names %d stages, but parallel.pipeline = %d", count, stages);
	if (sum != layers)
		return stages_wrong(e, text, "the stages have %lld layers together, but model.layers = %lld",
				    (long long)sum, (long long)layers);
	return true;
}

bool mesh_stages(int64_t *layers_of, int pipeline, int chunks, int64_t layers, double head_cost, const char *text,
		 struct error *e)
{
	if (layers < pipeline)
		return error_set(e, CODE_USAGE,
				 "parallel.pipeline = %d with model.layers = %lld leaves a stage without a layer: use "
				 "at most %lld stages", pipeline, (long long)layers, (long long)layers);
	bool list = strcmp(text, "auto") != 0;
	if ((layers + (list && chunks > 1 ? 2 : 0)) / pipeline < chunks)
		return error_set(e, CODE_USAGE,
				 "parallel.chunks = %d on parallel.pipeline = %d ranks with model.layers = %lld leaves a chunk "
				 "without a layer: use at most %lld chunks", chunks, pipeline, (long long)layers,
				 (long long)(layers / pipeline));
	if (list)
		return stages_from_list(layers_of, pipeline, chunks, layers, text, e);
	int stages = pipeline * chunks;
	/* All layers cost the same, so giving each in turn to the stage with the least load is best. */
	for (int i = 0; i < stages; i++)
		layers_of[i] = 1;
	for (int64_t left = layers - stages; left > 0; left--) {
		int least = 0;
		for (int i = 1; i < stages; i++) {
			double load = (double)layers_of[i] + (i == stages - 1 ? head_cost : 0);
			if (load < (double)layers_of[least])
				least = i;
		}
		layers_of[least]++;
	}
	return true;
}

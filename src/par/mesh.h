/* mesh.h: who is who: ranks as coordinates on the axes tensor, context, data, pipeline.
 *
 * rank = t + T·(c + C·(d + D·p)), tensor fastest, so that a tensor group sits inside a node. A mesh is plain data: it
 * can be built for 4096 ranks without starting one. groups.h turns it into comms. */
#ifndef MTRAIN_PAR_MESH_H
#define MTRAIN_PAR_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum axis { AXIS_TENSOR, AXIS_CONTEXT, AXIS_DATA, AXIS_PIPELINE, AXES };

/* Sequence parallelism beside tensor parallelism; auto: wherever the tokens of a micro-batch divide by tensor. */
enum sequence_choice { SEQUENCE_AUTO, SEQUENCE_ON, SEQUENCE_OFF };

/* In which order a pipeline rank runs forwards and backwards (train/schedule.h). */
enum pipeline_schedule { PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZERO_BUBBLE };

/* What is kept from forward to backward, and what is computed again (model/recompute.h). */
enum recompute_choice { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_AUTO };

/* [parallel] of the settings. */
struct parallel_settings {
	int64_t data;     /* 0: auto, world / (tensor·context·pipeline) */
	int64_t tensor;
	int64_t context;  /* ranks that share each sequence */
	int64_t pipeline;
	int64_t chunks; /* of the model on a pipeline rank: chunk v of rank p is virtual stage v·pipeline + p */
	enum pipeline_schedule schedule;
	enum sequence_choice sequence;
	bool shard_optimizer; /* its state is shared out over data ranks */
	bool overlap; /* communication beside computing */
	enum recompute_choice recompute;
	bool whole; /* no setting, the planner's for other trainers: tensor ranks move a micro-batch's rows at once, and gradients are
		     * summed over data ranks behind the last backward */
	const char *stages; /* "auto" or layers of each virtual stage: "9,10,10,9" */
};

struct mesh {
	int size[AXES];
	int at[AXES]; /* coordinates of `rank` */
	int rank;
};

/* A mesh for this rank of `world`. Fails: CODE_USAGE when the world does not fit, with the right launch lines; `program` and
 * `config` are named in them. */
bool mesh_init(struct mesh *m, const struct parallel_settings *s, int rank, int world, const char *program,
	       const char *config, struct error *e);

int mesh_world(const struct mesh *m);

/* Which of the context·data copies of the weights the rank has; 0 counts, saves and says what all copies share. */
int mesh_copy(const struct mesh *m);

int mesh_rank_of(const struct mesh *m, const int at[AXES]);
void mesh_place(const struct mesh *m, int rank, int at[AXES]);

/* Layers of each of the pipeline·chunks virtual stages: the list that `text` gives, or with "auto" the split that minimises
 * the largest, where a layer costs 1 and the head on the last one head_cost; ties go to earlier stages.
 * A list may leave the first and the last virtual stage, embedding and head, without layers where ranks have other chunks.
 * Fails: CODE_USAGE: a list of the wrong length or sum, a stage without a layer, more stages than layers (and two, with a
 * list); then layers_of is not written. */
bool mesh_stages(int64_t *layers_of, int pipeline, int chunks, int64_t layers, double head_cost, const char *text,
		 struct error *e);

#endif

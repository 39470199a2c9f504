/* graphs.h: work of the compute queue kept back and launched as CUDA graphs, each in one call (device.graphs).
 *
 * Inside a stretch of a step an op is not launched when it is queued: its arguments are added to a list. Whatever orders or
 * observes the compute queue, and the stretch's end, comes behind the list, which is carried out first. Lists that came twice
 * are captured between steps, when all that was queued has ended, since making graphs may hold host and card: by then kernels
 * and libraries have done what they do at a first call. From then on such a list is launched in one call. Lists are the same when
 * all that their ops read of their arguments is the same: a graph can never be launched for other work than its own, and gives
 * the bits of its ops. Communication stays outside.
 *
 * Another library's attention is captured with the rest. cuDNN's execute may be, where plans and workspace are made before: NVIDIA's
 * cudnn-frontend says so ("cuDNN `execute` is capture-safe; pre-build graphs and pre-allocate workspaces/outputs so nothing
 * allocates during capture", docs/utilities/framework_integration_performance.md) and itself loads the kernels of any plan by
 * capturing its execute, with numbers in the caller's memory as ours (Graph::warmup). The rehearsal makes plans and runs
 * them, and lists have been carried out twice before they are captured. tests/cudnn/test_plans.c names a plan whose engine does not
 * say that its work can be nodes of a graph.
 *
 * There is a bound on lists, and some of the card's memory is left free: beyond it ops are launched one by one, which is said
 * once. Owns the lists and graphs. Used by the backend; all functions but open and make take NULL: off. */
#ifndef MTRAIN_CUDA_GRAPHS_H
#define MTRAIN_CUDA_GRAPHS_H

#include <cuda_runtime_api.h>

#include "dev/ops.h"

#define GRAPHS_OP(name) GRAPHS_##name,
enum graphs_op { OPS(GRAPHS_OP) };
#undef GRAPHS_OP

struct graphs;

struct graphs_options {
	cudaStream_t stream;
	void (*run)(void *context, enum graphs_op op, const void *args); /* queues the op's kernels on the stream */
	void *context;
	int most;       /* lists; 0: as many as there is a table for */
};

/* Fails: CODE_MACHINE. */
bool graphs_open(struct graphs **g, const struct graphs_options *o, struct error *e);
void graphs_close(struct graphs *g); /* says what they did */

void graphs_begin(struct graphs *g); /* a stretch */
void graphs_end(struct graphs *g);

/* Takes an op, args its struct of `bytes`; false: it is to be carried out now, and what was kept has been. */
bool graphs_keep(struct graphs *g, enum graphs_op op, const void *args, size_t bytes);

/* Carries out what is kept. */
void graphs_flush(struct graphs *g);

/* Whether there are graphs to be made, outside of a stretch; and makes them. Needs: nothing is under way on any queue. */
bool graphs_due(const struct graphs *g);
void graphs_make(struct graphs *g);

/* Drops all graphs: ops of the same arguments are carried out in another way from now on. */
void graphs_forget(struct graphs *g);

#endif

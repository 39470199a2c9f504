#include "comm/mpi.h"

#include <stdlib.h>
#include <string.h>

#include "comm/limit.h"

void mpi_must(int rc, const char *call, const char *group)
{
	char text[MPI_MAX_ERROR_STRING];
	int kind, length;
	if (rc == MPI_SUCCESS)
		return;
	MPI_Error_class(rc, &kind);
	MPI_Error_string(rc, text, &length);
	bool ours = kind == MPI_ERR_TRUNCATE || kind == MPI_ERR_COUNT || kind == MPI_ERR_TYPE || kind == MPI_ERR_TAG ||
		    kind == MPI_ERR_RANK || kind == MPI_ERR_BUFFER || kind == MPI_ERR_ARG || kind == MPI_ERR_REQUEST;
	die(ours ? CODE_MACHINE : CODE_PEER, "%s in group %s: MPI says: %s", call, group, text);
}

static void *must_have(size_t count, size_t size)
{
	void *memory = calloc(count, size);
	if (!memory)
		die(CODE_MACHINE, "out of memory");
	return memory;
}

/* Makes a group of an MPI communicator and sends one byte between all pairs: connections are lazy, and what can go
 * wrong in making them shall go wrong here. */
static void group_init(struct comm *c, MPI_Comm mpi, struct mpi_world *world)
{
	struct mpi_group *g = must_have(1, sizeof *g);
	g->mpi = mpi;
	g->world = world;
	c->impl = g;
	mpi_must(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", c->name);
	comm_barrier(c);
}

static void world_init(struct mpi_world *w, struct device *dev, int size)
{
	for (int q = 0; q < QUEUES; q++) {
		struct mpi_lane *lane = &w->lanes[q];
		lane->room = 2 * size > EXCHANGE_MAX ? 2 * size : EXCHANGE_MAX;
		lane->requests = must_have((size_t)lane->room, sizeof *lane->requests);
		lane->statuses = must_have((size_t)lane->room, sizeof *lane->statuses);
		lane->expected = must_have((size_t)lane->room, sizeof *lane->expected);
		lane->inputs = must_have((size_t)size, sizeof *lane->inputs);
		lane->scratch = must_have(LANE_SCRATCH, 1);
		if (!dev->backend->apart)
			continue;
		lane->stage = dev->backend->take_host(dev, LANE_STAGE);
		if (!lane->stage)
			die(CODE_MACHINE, "%s: no host memory for copies of %d bytes", dev_name(dev), (int)LANE_STAGE);
	}
}

static void world_finish(struct mpi_world *w, struct device *dev)
{
	for (int q = 0; q < QUEUES; q++) {
		struct mpi_lane *lane = &w->lanes[q];
		check(lane->pending == 0);
		free(lane->requests);
		free(lane->statuses);
		free(lane->expected);
		free(lane->inputs);
		free(lane->scratch);
		if (lane->stage)
			dev->backend->give_back_host(dev, lane->stage);
	}
	while (w->pool) {
		struct mpi_work *work = w->pool;
		w->pool = work->next_free;
		free(work);
	}
	free(w);
}

/* MPI_Init under a launcher that does not speak MPI's language prints pages and kills the process, so it is asked
 * beforehand. Open MPI knows PMIx alone; others have PMI-1 and PMI-2 too. */
static bool launched(void)
{
#ifdef OPEN_MPI
	return getenv("PMIX_RANK");
#else
	return getenv("PMIX_RANK") || getenv("PMI_RANK") || getenv("PMI_FD");
#endif
}

static bool refuse(int size, struct error *e)
{
	return error_set(e, CODE_USAGE,
		"the launcher started %d ranks but MPI cannot reach the others; start with `srun --mpi=pmix -n %d mtrain …` "
		"or `mpirun -n %d mtrain …`", size, size, size);
}

static bool mpi_open(struct comm *world, struct error *e)
{
	int rank, size, provided, ready = 0;
	MPI_Comm mpi;

	if (!launched())
		return refuse(world->size, e);
	/* Waiting is ours (the device's queues sleep); Open MPI's own yielding would cost a time slice on a busy machine. */
	setenv("OMPI_MCA_mpi_yield_when_idle", "0", false);
	limit_begin("MPI_Init", world->name, world->dev->timeout);
	MPI_Initialized(&ready);
	if (!ready)
		mpi_must(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init", world->name);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != world->size || rank != world->rank) {
		limit_end();
		if (size == 1)
			return refuse(world->size, e);
		die(CODE_MACHINE, "the launcher says rank %d of %d, MPI says rank %d of %d", world->rank, world->size, rank, size);
	}
	mpi_must(MPI_Comm_dup(MPI_COMM_WORLD, &mpi), "MPI_Comm_dup", world->name);
	limit_end();

	struct mpi_world *w = must_have(1, sizeof *w);
	world_init(w, world->dev, size);
	group_init(world, mpi, w);
	return true;
}

static bool mpi_split(struct comm *child, int color, int key, struct error *e)
{
	struct mpi_group *parent = child->parent->impl;
	MPI_Comm mpi;
	limit_begin("MPI_Comm_split", child->name, child->dev->timeout);
	mpi_must(MPI_Comm_split(parent->mpi, color < 0 ? MPI_UNDEFINED : color, key, &mpi), "MPI_Comm_split", child->name);
	limit_end();
	if (mpi == MPI_COMM_NULL)
		return true;
	MPI_Comm_rank(mpi, &child->rank);
	MPI_Comm_size(mpi, &child->size);
	group_init(child, mpi, parent->world);
	return true;
}

/* Freeing a communicator and ending MPI are collective and blocking; the barrier before them waits under the queue's
 * clock until everybody is there. */
static void mpi_close(struct comm *c)
{
	struct mpi_group *g = c->impl;
	comm_barrier(c);
	limit_begin(c->parent ? "MPI_Comm_free" : "MPI_Finalize", c->name, c->dev->timeout);
	MPI_Comm_free(&g->mpi);
	if (!c->parent) {
		MPI_Finalize();
		world_finish(g->world, c->dev);
	}
	limit_end();
	free(g);
}

static const char *const call_names[KINDS] = {
	"all-reduce", "all-gather", "reduce-scatter", "broadcast", "exchange", "host gather", "host broadcast",
};

struct mpi_work *mpi_work_take(struct comm *c, enum queue q, enum mpi_kind kind)
{
	struct mpi_world *world = ((struct mpi_group *)c->impl)->world;
	struct mpi_work *w = world->pool;
	if (w)
		world->pool = w->next_free;
	else
		w = must_have(1, sizeof *w);
	w->base = (struct work){mpi_advance, call_names[kind], c->name, NULL};
	w->comm = c;
	w->kind = kind;
	w->queue = q;
	w->phase = 0;
	w->at = w->round = 0;
	return w;
}

void mpi_post(struct mpi_work *w)
{
	dev_post(w->comm->dev, w->queue, &w->base);
}

void mpi_host_all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	struct mpi_work *w = mpi_work_take(c, q, KIND_ALL_REDUCE);
	w->out = t;
	mpi_post(w);
}

void mpi_host_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	struct mpi_work *w = mpi_work_take(c, q, KIND_ALL_GATHER);
	w->out = out;
	w->in = in;
	mpi_post(w);
}

void mpi_host_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	struct mpi_work *w = mpi_work_take(c, q, KIND_REDUCE_SCATTER);
	w->out = out;
	w->in = in;
	mpi_post(w);
}

void mpi_host_broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	struct mpi_work *w = mpi_work_take(c, q, KIND_BROADCAST);
	w->out = t;
	w->root = root;
	mpi_post(w);
}

void mpi_host_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	struct mpi_work *w = mpi_work_take(c, q, KIND_EXCHANGE);
	w->count = count;
	memcpy(w->transfers, transfers, (size_t)count * sizeof *transfers);
	mpi_post(w);
}

static bool apart(const struct comm *c)
{
	return c->dev->backend->apart;
}

static void mpi_all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	(apart(c) ? mpi_stage_all_reduce : mpi_host_all_reduce)(c, q, t);
}

static void mpi_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	(apart(c) ? mpi_stage_all_gather : mpi_host_all_gather)(c, q, out, in);
}

static void mpi_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	(apart(c) ? mpi_stage_reduce_scatter : mpi_host_reduce_scatter)(c, q, out, in);
}

static void mpi_broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	(apart(c) ? mpi_stage_broadcast : mpi_host_broadcast)(c, q, t, root);
}

static void mpi_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	(apart(c) ? mpi_stage_exchange : mpi_host_exchange)(c, q, transfers, count);
}

/* Host calls stand on the copy queue and wait there, so that works on other queues move meanwhile: a peer may need
 * them before it comes to the same call. */
static void mpi_set_gather(struct comm *c, void *out, const void *in, size_t bytes)
{
	struct mpi_work *w = mpi_work_take(c, Q_COPY, KIND_HOST_GATHER);
	char *own = (char *)out + (size_t)c->rank * bytes;
	memmove(own, in, bytes);
	w->out = tensor_2d(out, U8, c->size, (int64_t)bytes);
	w->in = tensor_2d(own, U8, 1, (int64_t)bytes);
	mpi_post(w);
	dev_finish(c->dev, dev_mark(c->dev, Q_COPY));
}

static void mpi_set_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
	struct mpi_work *w = mpi_work_take(c, Q_COPY, KIND_HOST_BROADCAST);
	w->out = tensor_1d(data, U8, (int64_t)bytes);
	w->root = root;
	mpi_post(w);
	dev_finish(c->dev, dev_mark(c->dev, Q_COPY));
}

const struct transport transport_mpi = {
	.name = "mpi",
	.open = mpi_open,
	.split = mpi_split,
	.close = mpi_close,
	.all_reduce = mpi_all_reduce,
	.all_gather = mpi_all_gather,
	.reduce_scatter = mpi_reduce_scatter,
	.broadcast = mpi_broadcast,
	.exchange = mpi_exchange,
	.host_gather = mpi_set_gather,
	.host_broadcast = mpi_set_broadcast,
};

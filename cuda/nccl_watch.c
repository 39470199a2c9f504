/* What is open and under way: waiting for NCCL, looking for its errors, breaking it off. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "comm/launch.h"
#include "card_nccl.h"

static const double LOOK = 0.01; /* seconds between two looks for errors */

/* All that are open: a bad end, on whatever thread, must reach them. */
static struct nccl_group *groups;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void nccl_must(ncclResult_t rc, ncclComm_t nccl, const char *call, const char *group)
{
	if (rc == ncclSuccess || rc == ncclInProgress)
		return;
	const char *more = ncclGetLastError(nccl);
	die(rc == ncclRemoteError ? CODE_PEER : CODE_MACHINE, "%s in group %s: NCCL: %s%s%s", call, group, ncclGetErrorString(rc),
	    more && *more ? ": " : "", more ? more : "");
}

static ncclResult_t state_of(ncclComm_t nccl, const char *call, const char *group)
{
	ncclResult_t state = ncclSuccess;
	nccl_must(ncclCommGetAsyncError(nccl, &state), nccl, call, group);
	nccl_must(state, nccl, call, group);
	return state;
}

void nccl_settle(struct device *dev, ncclComm_t nccl, const char *call, const char *group)
{
	double begin = clock_now();
	while (state_of(nccl, call, group) == ncclInProgress) {
		sched_yield();
		if (dev->timeout > 0 && clock_now() - begin >= dev->timeout)
			die(CODE_PEER, "%s in group %s: not all ranks joined in %g s", call, group, dev->timeout);
	}
}

/* The lock is tried for a while only: main may have died inside of it. */
static void abort_all(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	if (pthread_mutex_timedlock(&lock, &until) != 0)
		return;
	for (struct nccl_group *g = groups; g; g = g->next)
		ncclCommAbort(g->nccl);
	groups = NULL;
	pthread_mutex_unlock(&lock);
}

static void list(struct nccl_group *g)
{
	pthread_mutex_lock(&lock);
	g->next = groups;
	groups = g;
	pthread_mutex_unlock(&lock);
	launch_set_leaving(abort_all);
}

static void unlist(struct nccl_group *g)
{
	pthread_mutex_lock(&lock);
	struct nccl_group **at = &groups;
	while (*at && *at != g)
		at = &(*at)->next;
	if (*at)
		*at = g->next;
	if (!groups)
		launch_set_leaving(NULL);
	pthread_mutex_unlock(&lock);
}

void nccl_called(struct comm *c, enum queue q, const char *call)
{
	struct nccl_group *g = c->impl;
	struct nccl_call *noted = &g->world->calls[q][g->world->called[q]++ % NCCL_CALLS];
	nccl_settle(c->dev, g->nccl, call, c->name);
	noted->call = call;
	noted->group = c->name;
	if (!noted->ended)
		CALL(cudaEventCreateWithFlags(&noted->ended, cudaEventDisableTiming));
	CALL(cudaEventRecord(noted->ended, card_of(c->dev)->streams[q].stream));
}

/* The oldest remembered call of a queue that has not ended. */
static const struct nccl_call *open_call(const struct nccl_world *w, enum queue q)
{
	uint64_t kept = w->called[q] < NCCL_CALLS ? w->called[q] : NCCL_CALLS;
	for (uint64_t n = w->called[q] - kept; n < w->called[q]; n++) {
		const struct nccl_call *call = &w->calls[q][n % NCCL_CALLS];
		if (call->ended && cudaEventQuery(call->ended) == cudaErrorNotReady)
			return call;
	}
	return NULL;
}

void nccl_watch(struct device *dev, bool late)
{
	struct nccl_world *w = dev->watched;
	double time = clock_now();
	if (time - w->looked >= LOOK || late) {
		w->looked = time;
		for (struct nccl_group *g = groups; g; g = g->next) /* only this thread changes the list */
			state_of(g->nccl, "a call", g->name);
	}
	for (int q = 0; q < QUEUES && late; q++) {
		const struct nccl_call *call = open_call(w, (enum queue)q);
		if (call)
			die(CODE_PEER, "%s in group %s: not done after %g s", call->call, call->group, dev->timeout);
	}
}

/* Sums one number over all ranks and sends one round the ring, in the world's room. */
static void warm_up(struct comm *c)
{
	struct nccl_group *g = c->impl;
	float *room = (float *)(void *)g->world->room;
	cudaStream_t stream = card_of(c->dev)->streams[Q_COPY].stream;
	int right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
	if (c->size == 1)
		return;
	nccl_must(ncclAllReduce(room, room, 1, ncclFloat32, ncclSum, g->nccl, stream), g->nccl, "the first all-reduce", c->name);
	nccl_called(c, Q_COPY, "the first all-reduce");
	nccl_must(ncclGroupStart(), g->nccl, "the first exchange", c->name);
	nccl_must(ncclSend(room, 1, ncclFloat32, right, g->nccl, stream), g->nccl, "the first exchange", c->name);
	nccl_must(ncclRecv(room + 1, 1, ncclFloat32, left, g->nccl, stream), g->nccl, "the first exchange", c->name);
	nccl_must(ncclGroupEnd(), g->nccl, "the first exchange", c->name);
	nccl_called(c, Q_COPY, "the first exchange");
	dev_finish(c->dev, dev_mark(c->dev, Q_COPY));
}

void nccl_group_open(struct comm *c, ncclComm_t nccl, struct nccl_world *world)
{
	struct nccl_group *g = calloc(1, sizeof *g);
	check(g);
	*g = (struct nccl_group){.nccl = nccl, .name = c->name, .world = world};
	c->impl = g;
	list(g);
	warm_up(c);
}

void nccl_group_close(struct comm *c)
{
	struct nccl_group *g = c->impl;
	comm_barrier(c);
	unlist(g);
	nccl_must(ncclCommFinalize(g->nccl), g->nccl, "ncclCommFinalize", c->name);
	nccl_settle(c->dev, g->nccl, "ncclCommFinalize", c->name);
	nccl_must(ncclCommDestroy(g->nccl), NULL, "ncclCommDestroy", c->name);
	free(g);
}

/* team.h: ranks as threads of one process: a transport with the host-side calls alone, and a device for each rank.
 *
 * For tests of what ranks agree on without a launcher. Assertions must not be made inside a member: it fills its
 * struct member, and the test looks afterwards. */
#ifndef MTRAIN_TESTS_TEAM_H
#define MTRAIN_TESTS_TEAM_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/transport.h"
#include "dev/cpu/cpu.h"

enum { TEAM_MAX = 16 };

struct member {
	int rank, ranks;
	struct comm *world;
	struct device *dev;
	void *job;
	void (*work)(struct member *m);
	pthread_t thread;
};

static struct {
	pthread_barrier_t barrier;
	void *slots[TEAM_MAX];
} team;

static bool team_open(struct comm *world, struct error *e)
{
	(void)world, (void)e;
	return true;
}

static void team_close(struct comm *c)
{
	(void)c;
}

static bool team_split(struct comm *child, int color, int key, struct error *e)
{
	(void)child, (void)color, (void)key, (void)e;
	die(CODE_MACHINE, "a team has no groups");
}

static void team_none(struct comm *c, enum queue q, struct tensor t)
{
	(void)c, (void)q, (void)t;
	die(CODE_MACHINE, "a team moves no device tensors");
}

static void team_none2(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	(void)in;
	team_none(c, q, out);
}

static void team_none_root(struct comm *c, enum queue q, struct tensor t, int root)
{
	(void)root;
	team_none(c, q, t);
}

static void team_none_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	(void)transfers, (void)count;
	team_none(c, q, (struct tensor){0});
}

static void team_host_gather(struct comm *c, void *out, const void *in, size_t bytes)
{
	void *copy = malloc(bytes); /* `in` may lie in `out` */
	check(copy);
	memcpy(copy, in, bytes);
	team.slots[c->rank] = copy;
	pthread_barrier_wait(&team.barrier);
	for (int r = 0; r < c->size; r++)
		memcpy((char *)out + (size_t)r * bytes, team.slots[r], bytes);
	pthread_barrier_wait(&team.barrier);
	free(copy);
}

static void team_host_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
	if (c->rank == root)
		team.slots[root] = data;
	pthread_barrier_wait(&team.barrier);
	if (c->rank != root)
		memcpy(data, team.slots[root], bytes);
	pthread_barrier_wait(&team.barrier);
}

static const struct transport team_transport = {
	.name = "team",
	.open = team_open,
	.split = team_split,
	.close = team_close,
	.all_reduce = team_none,
	.all_gather = team_none2,
	.reduce_scatter = team_none2,
	.broadcast = team_none_root,
	.exchange = team_none_exchange,
	.host_gather = team_host_gather,
	.host_broadcast = team_host_broadcast,
};

static void *team_member(void *context)
{
	struct member *m = context;
	struct error e = {0};
	struct dev_options options = {.threads = 1, .plain = true};
	if (!dev_open(&m->dev, &backend_cpu, &options, &e) ||
	    !comm_open(&m->world, &team_transport, m->dev, m->rank, m->ranks, &e))
		die(e.code, "%s", e.text);
	m->work(m);
	comm_close(m->world);
	dev_close(m->dev);
	return NULL;
}

/* Runs work on so many ranks at once and waits for all. */
static void team_run(int ranks, void (*work)(struct member *m), void *job)
{
	struct member members[TEAM_MAX];
	check(ranks <= TEAM_MAX && pthread_barrier_init(&team.barrier, NULL, (unsigned)ranks) == 0);
	for (int r = 0; r < ranks; r++)
		members[r] = (struct member){.rank = r, .ranks = ranks, .job = job, .work = work};
	for (int r = 1; r < ranks; r++)
		check(pthread_create(&members[r].thread, NULL, team_member, &members[r]) == 0);
	team_member(&members[0]);
	for (int r = 1; r < ranks; r++)
		pthread_join(members[r].thread, NULL);
	pthread_barrier_destroy(&team.barrier);
}

#endif

#include "dev/cpu/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dev/cpu/cpu.h"

/* How long a thread looks for the next loop before it sleeps: loops follow each other within this time, and waking up
 * takes as long. */
enum { SPIN_NANOSECONDS = 100000 };

struct worker {
	struct pool *pool;
	pthread_t id;
	int thread;
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t begin;
	int workers, sleeping;
	bool ending;

	/* The loop that runs. Changed under the lock, and only while no worker is inside. */
	atomic_uint loops; /* begun so far */
	void (*body)(void *context, int64_t part, int thread);
	void *context;
	int64_t parts;
	atomic_int_fast64_t next; /* the first part that nobody has taken */
	atomic_int inside;        /* workers that may still touch the loop */

	struct worker worker[];
};

static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* One part, with results below the normal range flushed to zero: where they appear (in moments that fade away, say) they
 * cost a hundred times as much. Only within the part, since what cpu_poll computes must not depend on when it comes. */
static void run(void (*body)(void *context, int64_t part, int thread), void *context, int64_t part, int thread)
{
#ifdef __x86_64__
	const unsigned flush_to_zero = 0x8000, before = __builtin_ia32_stmxcsr();
	__builtin_ia32_ldmxcsr(before | flush_to_zero);
	body(context, part, thread);
	__builtin_ia32_ldmxcsr(before);
#else
	body(context, part, thread);
#endif
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for a loop other than the one `seen`, first awake, then asleep; holds the lock when it returns. */
static void wait_for_loop(struct pool *p, unsigned seen)
{
	int64_t until = now() + SPIN_NANOSECONDS;
	while (atomic_load_explicit(&p->loops, memory_order_acquire) == seen && now() < until)
		for (int i = 0; i < 64; i++)
			relax();
	pthread_mutex_lock(&p->lock);
	while (p->loops == seen && !p->ending) {
		p->sleeping++;
		pthread_cond_wait(&p->begin, &p->lock);
		p->sleeping--;
	}
}

static void *work(void *argument)
{
	struct worker *w = argument;
	struct pool *p = w->pool;
	unsigned seen = 0;
	for (;;) {
		wait_for_loop(p, seen);
		if (p->ending)
			break;
		seen = p->loops;
		bool late = atomic_load(&p->next) >= p->parts;
		if (!late)
			atomic_fetch_add(&p->inside, 1);
		pthread_mutex_unlock(&p->lock);
		if (late)
			continue;
		for (int64_t part; (part = atomic_fetch_add(&p->next, 1)) < p->parts;)
			run(p->body, p->context, part, w->thread);
		atomic_fetch_sub_explicit(&p->inside, 1, memory_order_release);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void pool_close(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->ending = true;
	pthread_cond_broadcast(&p->begin);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->workers; i++)
		pthread_join(p->worker[i].id, NULL);
	pthread_cond_destroy(&p->begin);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct pool *pool_open(int threads)
{
	struct pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof *p->worker);
	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->begin, NULL);
	/* Signals are for the host thread. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (p->workers < threads - 1) {
		struct worker *w = &p->worker[p->workers];
		*w = (struct worker){.pool = p, .thread = p->workers + 1};
		if (pthread_create(&w->id, NULL, work, w) != 0)
			break;
		p->workers++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (p->workers == threads - 1)
		return p;
	pool_close(p);
	return NULL;
}

void parallel(struct device *dev, int64_t parts, void (*body)(void *context, int64_t part, int thread), void *context)
{
	struct pool *p = cpu_pool(dev);
	if (parts <= 1 || p->workers == 0) {
		for (int64_t i = 0; i < parts; i++) {
			run(body, context, i, 0);
			cpu_poll(dev);
		}
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->body = body;
	p->context = context;
	p->parts = parts;
	atomic_store(&p->next, 0);
	atomic_fetch_add_explicit(&p->loops, 1, memory_order_release);
	if (p->sleeping > 0)
		pthread_cond_broadcast(&p->begin);
	pthread_mutex_unlock(&p->lock);

	for (int64_t part; (part = atomic_fetch_add(&p->next, 1)) < parts;) {
		run(body, context, part, 0);
		cpu_poll(dev);
	}
	/* A worker that comes from now on finds no part; wait for those that are at their last one. */
	for (int rounds = 0; atomic_load_explicit(&p->inside, memory_order_acquire) > 0; rounds++) {
		cpu_poll(dev);
		if (rounds < 1000)
			relax();
		else
			sched_yield();
	}
}

int parallel_cores(void)
{
	int most = (int)sysconf(_SC_NPROCESSORS_CONF), count = 0;
	size_t bytes = CPU_ALLOC_SIZE(most);
	cpu_set_t *set = CPU_ALLOC(most);
	if (set && sched_getaffinity(0, bytes, set) == 0)
		count = CPU_COUNT_S(bytes, set);
	CPU_FREE(set);
	return count > 0 ? count : 1;
}

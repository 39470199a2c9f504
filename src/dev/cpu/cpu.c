#include "dev/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cpu/fast/fast.h"
#include "dev/cpu/memory.h"
#include "dev/cpu/parallel.h"
#include "dev/cpu/queue.h"

enum { ROOM_UNIT = 4096 };

struct cpu {
	struct queues queues;
	struct mapping *mappings;
	struct pool *pool;
	const struct ops *column;
	const struct fast_column *fast; /* NULL: plain alone */
	char *room;                     /* of the fast ops: for all threads, then one piece each */
	size_t shared, each;
};

static struct cpu *cpu_of(const struct device *dev)
{
	return dev->impl;
}

struct pool *cpu_pool(const struct device *dev)
{
	return cpu_of(dev)->pool;
}

void cpu_poll(struct device *dev)
{
	queues_poll(&cpu_of(dev)->queues);
}

/* Every op first pushes communication forward, then goes to its column. */
#define OP_POLLED(name)                                                         \
	static void polled_##name(struct device *dev, const struct op_##name *a) \
	{                                                                       \
		cpu_poll(dev);                                                  \
		cpu_of(dev)->column->name(dev, a);                              \
	}
OPS(OP_POLLED)
#undef OP_POLLED

#define OP_ENTRY(name) .name = polled_##name,
static const struct ops ops_polled = {OPS(OP_ENTRY)};
#undef OP_ENTRY

static void *cpu_take(struct device *dev, size_t bytes)
{
	return memory_take(dev, &cpu_of(dev)->mappings, bytes);
}

static void cpu_give_back(struct device *dev, void *memory)
{
	memory_give_back(&cpu_of(dev)->mappings, memory);
}

static void cpu_close(struct device *dev)
{
	struct cpu *cpu = cpu_of(dev);
	while (cpu->mappings)
		memory_give_back(&cpu->mappings, cpu->mappings->base);
	pool_close(cpu->pool);
	free(cpu);
}

static bool cpu_open(struct device *dev, const struct dev_options *options, struct error *e)
{
	struct cpu *cpu = calloc(1, sizeof *cpu);
	if (!cpu)
		return error_set(e, CODE_MACHINE, "out of memory");
	dev->impl = cpu;
	dev->ops = &ops_polled;
	dev->threads = options->threads > 0 ? options->threads : parallel_cores();
	if (!options->plain && !(cpu->fast = fast_pick(options->instructions))) {
		free(cpu);
		return error_set(e, CODE_MACHINE, "this processor or build does not have the instructions %s",
				 options->instructions);
	}
	cpu->column = cpu->fast ? cpu->fast->ops : &ops_plain;
	snprintf(dev->text, sizeof dev->text, "cpu (%d thread%s, %s)", dev->threads, dev->threads == 1 ? "" : "s",
		 cpu->fast ? cpu->fast->name : "plain");
	cpu->pool = pool_open(dev->threads);
	if (!cpu->pool) {
		free(cpu);
		return error_set(e, CODE_MACHINE, "cannot start %d threads", dev->threads);
	}
	dev->scalars = cpu_take(dev, sizeof *dev->scalars);
	if (!dev->scalars) {
		cpu_close(dev);
		return error_set(e, CODE_MACHINE, "out of memory");
	}
	return true;
}

static bool cpu_reserve(struct device *dev, const struct dev_limits *limits, struct error *e)
{
	struct cpu *cpu = cpu_of(dev);
	if (!cpu->fast)
		return true;
	cpu->fast->room(limits, &cpu->shared, &cpu->each);
	/* Pieces in whole pages: no two threads write to one cache line. */
	cpu->shared = (cpu->shared + ROOM_UNIT - 1) / ROOM_UNIT * ROOM_UNIT;
	cpu->each = (cpu->each + ROOM_UNIT - 1) / ROOM_UNIT * ROOM_UNIT;
	size_t bytes = cpu->shared + (size_t)dev->threads * cpu->each;
	cpu->room = cpu_take(dev, bytes);
	if (!cpu->room)
		return error_set(e, CODE_MACHINE, "%s: cannot have %zu bytes of workspace", dev->text, bytes);
	dev->workspace = bytes;
	return true;
}

void *cpu_room(const struct device *dev)
{
	check(cpu_of(dev)->room);
	return cpu_of(dev)->room;
}

void *cpu_room_of(const struct device *dev, int thread)
{
	const struct cpu *cpu = cpu_of(dev);
	check(cpu->room);
	return cpu->room + cpu->shared + (size_t)thread * cpu->each;
}

/* The clock that the system reports; 0: it does not. */
static double clock_hertz(void)
{
	double mhz = 0;
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "re");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "cpu MHz : %lf", &mhz) == 1)
			break;
	if (f)
		fclose(f);
	return mhz * 1e6;
}

/* There is no datasheet at hand: cores in use · clock as reported · operations a cycle that the best instructions of
 * this processor allow. Types narrower than F32 are computed in it. */
static double cpu_peak_flops(const struct device *dev, enum dtype compute)
{
	int cores = parallel_cores();
	double peak = (dev->threads < cores ? dev->threads : cores) * clock_hertz() * fast_pick(NULL)->flops;
	return compute == F64 ? peak / 2 : peak;
}

static struct mark cpu_mark(struct device *dev, enum queue q)
{
	cpu_poll(dev);
	return queues_mark(&cpu_of(dev)->queues, q);
}

static void cpu_wait(struct device *dev, enum queue q, struct mark m)
{
	queues_wait(&cpu_of(dev)->queues, q, m, dev->timeout);
}

static void cpu_finish(struct device *dev, struct mark m)
{
	queues_finish(&cpu_of(dev)->queues, m, dev->timeout);
}

/* The host does these copies itself, so it first waits for what is on the queue. */
static void drain(struct device *dev, enum queue q)
{
	cpu_finish(dev, queues_mark(&cpu_of(dev)->queues, q));
}

static void cpu_copy(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	drain(dev, q);
	memmove(to, from, bytes);
}

static void cpu_zero(struct device *dev, enum queue q, void *to, size_t bytes)
{
	drain(dev, q);
	memset(to, 0, bytes);
}

static void cpu_post(struct device *dev, enum queue q, struct work *w)
{
	queues_post(&cpu_of(dev)->queues, q, w, dev->timeout);
}

/* Nothing is loaded late, and each shape has one way. */
static bool cpu_rehearse(struct device *dev, bool on)
{
	return false;
}

static void cpu_choose(struct device *dev, struct tuning *own, bool timed)
{
}

static void cpu_told(struct device *dev, const struct tuning *choices)
{
}

const struct backend backend_cpu = {
	.name = "cpu",
	.open = cpu_open,
	.reserve = cpu_reserve,
	.close = cpu_close,
	.take = cpu_take,
	.give_back = cpu_give_back,
	.take_host = cpu_take,
	.give_back_host = cpu_give_back,
	.peak_flops = cpu_peak_flops,
	.mark = cpu_mark,
	.wait = cpu_wait,
	.finish = cpu_finish,
	.write = cpu_copy,
	.read = cpu_copy,
	.copy = cpu_copy,
	.zero = cpu_zero,
	.begin = dev_begin_always,
	.end = dev_end_nothing,
	.post = cpu_post,
	.rehearse = cpu_rehearse,
	.choose = cpu_choose,
	.told = cpu_told,
};

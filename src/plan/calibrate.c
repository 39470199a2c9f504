#include "plan/calibrate.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "dev/backend.h"
#include "plan/calibrate_bench.h"

double calibrate_now(bool cpu, int threads)
{
	struct timespec t;
	clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
	return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / (cpu && threads > 1 ? threads : 1);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

double calibrate_median(double *seconds, int count)
{
	qsort(seconds, (size_t)count, sizeof *seconds, ascending);
	return seconds[count / 2];
}

int calibrate_repeats(double seconds)
{
	enum { MOST = 2000 };
	double times = 0.002 / (seconds > 1e-9 ? seconds : 1e-9);
	return times < 1 ? 1 : times > MOST ? MOST : (int)times;
}

void calibrate_point(struct hardware_curve *c, double size, double rate)
{
	if (c->count == HARDWARE_POINTS || (c->count > 0 && size <= c->size[c->count - 1]) || !(rate > 0))
		return;
	c->size[c->count] = size;
	c->rate[c->count++] = rate;
}

__attribute__((format(printf, 4, 5)))
static void set(struct hardware_number *n, double value, enum hardware_mark mark, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	n->value = value;
	n->mark = mark;
	vsnprintf(n->source, sizeof n->source, format, args);
	va_end(args);
}

static void measure_device(struct hardware *h, struct calibrate_bench *b)
{
	const char *name = dev_name(b->dev);
	double seconds, bytes = 64 << 20;
	size_t before = b->arena.used;
	struct tensor from = arena_1d(&b->arena, U8, (int64_t)bytes), to = arena_1d(&b->arena, U8, (int64_t)bytes);
	CALIBRATE_TIME(b, seconds, dev_copy(b->dev, Q_COMPUTE, to, from));
	set(&h->memory_gbps, 2 * bytes / seconds * 1e-9, MARK_MEASURED, "a copy of 64 MiB on %s", name);
	CALIBRATE_TIME(b, seconds, dev_copy(b->dev, Q_COMPUTE, tensor_rows(to, 0, 64), tensor_rows(from, 0, 64)));
	set(&h->kernel_us, seconds * 1e6, MARK_MEASURED, "a copy of 64 bytes on %s", name);
	b->arena.used = before;
	set(&h->peak_fp16_tflops, dev_peak_flops(b->dev, F16) * 1e-12, MARK_DATASHEET, "%s", name);
	set(&h->peak_bf16_tflops, dev_peak_flops(b->dev, BF16) * 1e-12, MARK_DATASHEET, "%s", name);
	set(&h->peak_fp32_tflops, dev_peak_flops(b->dev, F32) * 1e-12, MARK_DATASHEET, "%s", name);
	set(&h->memory_efficiency, 1, MARK_MEASURED, "memory_gbps is measured itself");
	set(&h->gemm_efficiency, 1, MARK_MEASURED, "rates.* are measured themselves");
}

/* The largest block that the device still gives, to a GiB. */
static void measure_memory(struct hardware *h, struct device *dev)
{
	double had = 0;
	for (double step = 256; step >= 1; step /= 2) {
		void *memory;
		struct error e;
		if (!dev_take(dev, &memory, (size_t)((had + step) * 0x1p30), &e))
			continue;
		dev_give_back(dev, memory);
		had += step;
	}
	set(&h->memory_gib, had, MARK_MEASURED, "the largest block that %s gave", dev_name(dev));
}

/* On the CPU the host is the device, and the same cores compute and communicate. */
static void set_cpu(struct hardware *h)
{
	set(&h->memory_gib, (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 0x1p30, MARK_MEASURED, "of the machine");
	set(&h->launch_us, 0, MARK_ASSUMED, "the host is the device");
	set(&h->context_gib, 0, MARK_ASSUMED, "the ops' workspace is counted by itself");
	set(&h->library_gib, 0, MARK_ASSUMED, "the ops' workspace is counted by itself");
	set(&h->group_gib, 0, MARK_ASSUMED, "a few MiB");
	set(&h->overlap_slowdown, 2, MARK_ASSUMED, "the same cores compute and communicate");
}

/* Seconds of an all-reduce and of a message to the next rank, with all ranks at it. */
static double all_reduced(struct calibrate_bench *b, struct comm *c, int64_t elements)
{
	struct tensor t = tensor_1d(b->arena.base, F32, elements);
	double seconds;
	comm_barrier(c);
	/* Every rank must make as many calls: rounds are counted, not timed. */
	double rounds[CALIBRATE_ROUNDS];
	for (int i = -1; i < CALIBRATE_ROUNDS; i++) {
		double begin = calibrate_now(false, 1);
		for (int k = 0; k < 4; k++)
			comm_all_reduce(c, Q_DATA, t);
		dev_finish(b->dev, dev_mark(b->dev, Q_DATA));
		seconds = (calibrate_now(false, 1) - begin) / 4;
		if (i >= 0)
			rounds[i] = seconds;
	}
	return calibrate_median(rounds, CALIBRATE_ROUNDS);
}

static double sent(struct calibrate_bench *b, struct comm *c, int64_t elements)
{
	char *base = b->arena.base;
	struct tensor out = tensor_1d(base, F32, elements), in = tensor_1d(base + 4 * elements, F32, elements);
	int size = comm_size(c), rank = comm_rank(c);
	struct transfer list[] = {
		{.peer = (rank + 1) % size, .kind = TRANSFER_SEND, .tensor = out},
		{.peer = (rank + size - 1) % size, .kind = TRANSFER_RECEIVE, .tensor = in},
	};
	double rounds[CALIBRATE_ROUNDS];
	comm_barrier(c);
	for (int i = -1; i < CALIBRATE_ROUNDS; i++) {
		double begin = calibrate_now(false, 1);
		for (int k = 0; k < 4; k++)
			comm_exchange(c, Q_DATA, list, 2);
		dev_finish(b->dev, dev_mark(b->dev, Q_DATA));
		if (i >= 0)
			rounds[i] = (calibrate_now(false, 1) - begin) / 4;
	}
	return calibrate_median(rounds, CALIBRATE_ROUNDS);
}

/* A link of as many ranks as the comm has: floor from the smallest call, bandwidth from the largest. */
static void measure_link(struct hardware_link *l, struct calibrate_bench *b, struct comm *c)
{
	enum { SMALL = 256, LARGE = 1 << 21 };
	double n = comm_size(c), small = all_reduced(b, c, SMALL), large = all_reduced(b, c, LARGE);
	double message = sent(b, c, SMALL), block = sent(b, c, LARGE);
	double bus = 2 * (n - 1) / n * 4.0 * (LARGE - SMALL) / (large - small > 1e-9 ? large - small : 1e-9) * 1e-9;
	double pair = 4.0 * (LARGE - SMALL) / (block - message > 1e-9 ? block - message : 1e-9) * 1e-9;
	double best = bus > pair ? bus : pair;
	set(&l->gbps, best, MARK_MEASURED, "8 MiB over %d ranks", comm_size(c));
	set(&l->efficiency, bus / best, MARK_MEASURED, "all-reduce of 8 MiB over %d ranks", comm_size(c));
	set(&l->pair, pair / best, MARK_MEASURED, "a message of 8 MiB to the next of %d ranks", comm_size(c));
	set(&l->floor_us, small * 1e6, MARK_MEASURED, "all-reduce of 1 KiB over %d ranks", comm_size(c));
	set(&l->latency_us, message * 1e6, MARK_MEASURED, "a message of 1 KiB to the next of %d ranks", comm_size(c));
	set(&l->half_mb, 0, MARK_MEASURED, "in link_floor_us");
}

/* Inside nodes among the ranks of each, between them among one rank of each; one rank measures no link. */
static bool measure_links(struct hardware *h, struct calibrate_bench *b, const struct calibrate_options *o, struct error *e)
{
	int rank = comm_rank(o->world), size = comm_size(o->world), node = rank / o->local_size;
	struct comm *inside, *between;
	set(&h->devices_per_node, o->local_size, MARK_MEASURED, "ranks a node of this job");
	set(&h->nics_per_node, 1, MARK_ASSUMED, "what a node sends is measured as one");
	set(&h->node.gbps, h->memory_gbps.value / 2, MARK_ASSUMED, "one rank: no link to measure, as a copy of memory");
	if (size > 1) {
		if (!comm_split(&inside, o->world, "node", node, rank, e) || !comm_split(&between, o->world, "network", rank % o->local_size, rank, e))
			return false;
		if (comm_size(inside) > 1)
			measure_link(&h->node, b, inside);
		if (comm_size(between) > 1)
			measure_link(&h->network, b, between);
		comm_close(between);
		comm_close(inside);
	}
	if (size <= o->local_size) {
		h->network = h->node;
		set(&h->network.gbps, h->node.gbps.value, MARK_ASSUMED, "one node: as inside it");
	}
	return true;
}

/* Bytes a second of a synced write: how long checkpoints take. Told, not part of the file's numbers. */
static void measure_disk(const char *folder)
{
	enum { BYTES = 64 << 20 };
	char path[PATH_ROOM], name[64];
	char *data = calloc(1, BYTES);
	snprintf(name, sizeof name, ".mtrain-calibrate-%d", (int)getpid());
	if (!data || !file_join(path, folder, name)) {
		free(data);
		return;
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	unlink(path); /* at once: nothing stays, however this ends */
	double begin = calibrate_now(false, 1);
	bool good = fd >= 0 && file_write_all(fd, data, BYTES) && fsync(fd) == 0;
	double seconds = calibrate_now(false, 1) - begin;
	if (fd >= 0)
		close(fd);
	free(data);
	if (good)
		log_info("  disk       %.3g GB/s, a synced write of 64 MiB in %s", BYTES / seconds * 1e-9, folder);
}

bool calibrate(struct hardware *h, const struct calibrate_options *o, struct error *e)
{
	enum { ROOM = 256 << 20 };
	static const enum dtype types[] = {F32, F16, BF16};
	struct dev_limits limits = {.rows = CALIBRATE_ROWS, .width = CALIBRATE_WIDTH, .head_size = CALIBRATE_HEAD, .tensors = 4};
	struct calibrate_bench b = {.dev = o->dev, .h = h};
	void *memory;
	struct error bad = {0};

	if (!dev_reserve(o->dev, &limits, &bad) || !dev_take(o->dev, &memory, ROOM, &bad))
		memory = NULL;
	if (!comm_agree(o->world, &bad)) {
		*e = bad;
		return false;
	}
	arena_init(&b.arena, "calibration", memory, ROOM);
	char name[sizeof h->name] = "";
	gethostname(name, sizeof name - 1);
	hardware_init(h, name);
	h->cpu = strcmp(o->dev->backend->name, "cpu") == 0;
	measure_device(h, &b);
	if (h->cpu)
		set_cpu(h);
	else
		measure_memory(h, o->dev);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (hardware_peak(h, types[i]) > 0)
			calibrate_ops(&b, types[i]);
	bool good = measure_links(h, &b, o, e);
	if (comm_rank(o->world) == 0)
		measure_disk(o->folder);
	dev_give_back(o->dev, memory);
	comm_host_broadcast(o->world, h, sizeof *h, 0);
	return good;
}

#include "plan/calibrate.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "dev/backend.h"
#include "dev/workspace.h"
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

void calibrate_set(struct hardware_number *n, double value, enum hardware_mark mark, const char *format, ...)
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
	double seconds, bytes = h->cpu ? 64 << 20 : (double)(b->arena.capacity >> 22 << 20);
	size_t before = b->arena.used;
	struct tensor from = arena_1d(&b->arena, U8, (int64_t)bytes), to = arena_1d(&b->arena, U8, (int64_t)bytes);
	CALIBRATE_TIME(b, seconds, dev_copy(b->dev, Q_COMPUTE, to, from));
	calibrate_set(&h->memory_gbps, 2 * bytes / seconds * 1e-9, MARK_MEASURED, "a copy of %.0f MiB on %s", bytes * 0x1p-20, name);
	CALIBRATE_TIME(b, seconds, dev_copy(b->dev, Q_COMPUTE, tensor_rows(to, 0, 64), tensor_rows(from, 0, 64)));
	calibrate_set(&h->kernel_us, seconds * 1e6, MARK_MEASURED, "a copy of 64 bytes on %s", name);
	b->arena.used = before;
	calibrate_set(&h->memory_efficiency, 1, MARK_MEASURED, "memory_gbps is measured itself");
	calibrate_set(&h->gemm_efficiency, 1, MARK_MEASURED, "rates.* are measured themselves");
}

/* Of a device whose datasheet is not known, the best that its products reached; behind calibrate_ops. */
static void set_peaks(struct hardware *h, struct device *dev)
{
	struct {
		struct hardware_number *peak;
		enum dtype type;
	} peaks[] = {{&h->peak_fp16_tflops, F16}, {&h->peak_bf16_tflops, BF16}, {&h->peak_fp32_tflops, F32}};
	for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
		const struct hardware_curve *c = &h->gemm[hardware_type(peaks[i].type)];
		double known = dev_peak_flops(dev, peaks[i].type) * 1e-12, best = 0;
		for (int k = 0; k < c->count; k++)
			best = fmax(best, c->rate[k]);
		if (known > 0)
			calibrate_set(peaks[i].peak, known, MARK_DATASHEET, "%s", dev_name(dev));
		else
			calibrate_set(peaks[i].peak, best, MARK_MEASURED, "the best product, since the peak of %s is not known", dev_name(dev));
	}
}

/* Seconds that the host needs to queue a small op, without waiting for it. */
static void measure_launch(struct hardware *h, struct calibrate_bench *b)
{
	enum { CALLS = 200 };
	size_t before = b->arena.used;
	struct tensor from = arena_1d(&b->arena, U8, 64), to = arena_1d(&b->arena, U8, 64);
	double rounds[CALIBRATE_ROUNDS];
	for (int i = 0; i < CALIBRATE_ROUNDS; i++) {
		double begin = calibrate_now(false, 1);
		for (int k = 0; k < CALLS; k++)
			dev_copy(b->dev, Q_COMPUTE, to, from);
		rounds[i] = (calibrate_now(false, 1) - begin) / CALLS;
		dev_finish(b->dev, dev_mark(b->dev, Q_COMPUTE));
	}
	b->arena.used = before;
	calibrate_set(&h->launch_us, calibrate_median(rounds, CALIBRATE_ROUNDS) * 1e6, MARK_MEASURED, "to queue a copy of 64 bytes");
}

static void set_card(struct hardware *h, struct device *dev, const struct dev_limits *limits)
{
	/* What a run may take: the plan counts the driver's share as context_gib. */
	calibrate_set(&h->memory_gib, (double)dev_room(dev) * 0x1p-30 + h->context_gib.value, MARK_MEASURED, "free on %s, and context_gib",
		      dev_name(dev));
	bool cudnn = dev_workspace(dev) > workspace_cuda(limits, 0);
	calibrate_set(&h->cudnn_attention, cudnn, MARK_MEASURED, "this build %s %s", cudnn ? "has cuDNN for" : "has no cuDNN for", dev_name(dev));
}

/* On the CPU the host is the device, and the same cores compute and communicate. */
static void set_cpu(struct hardware *h)
{
	calibrate_set(&h->launch_us, 0, MARK_ASSUMED, "the host is the device");
	calibrate_set(&h->context_gib, 0, MARK_ASSUMED, "the ops' workspace is counted by itself");
	calibrate_set(&h->library_gib, 0, MARK_ASSUMED, "the ops' workspace is counted by itself");
	calibrate_set(&h->group_gib, 0, MARK_ASSUMED, "a few MiB");
	calibrate_set(&h->overlap_slowdown, 2, MARK_ASSUMED, "the same cores compute and communicate");
}

/* What the machine has is shared by the ranks of this job; behind calibrate_links. */
static void set_cpu_memory(struct hardware *h)
{
	double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 0x1p30, ranks = h->devices_per_node.value;
	calibrate_set(&h->memory_gib, all / ranks, MARK_MEASURED, "of the machine, over %.0f rank%s", ranks, ranks > 1 ? "s" : "");
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
	static const enum dtype types[] = {F32, F16, BF16};
	bool cpu = strcmp(o->dev->backend->name, "cpu") == 0;
	/* scores: so many that cuDNN's attention would have a larger workspace than all else */
	struct dev_limits limits = {.rows = CALIBRATE_ROWS, .width = CALIBRATE_WIDTH, .head_size = CALIBRATE_HEAD, .tensors = 4,
				    .scores = 256 << 20};
	if (cpu)
		limits = (struct dev_limits){.rows = CALIBRATE_CPU_ROWS, .width = CALIBRATE_CPU_WIDTH, .head_size = CALIBRATE_CPU_HEAD, .tensors = 4};
	struct calibrate_bench b = {.dev = o->dev, .h = h};
	void *memory;
	size_t bytes = cpu ? (size_t)256 << 20 : (size_t)4 << 30;
	struct error bad = {0};

	bool reserved = dev_reserve(o->dev, &limits, &bad);
	size_t left = dev_room(o->dev) > dev_workspace(o->dev) ? dev_room(o->dev) - dev_workspace(o->dev) : 0;
	if (left > 0 && bytes > left / 2)
		bytes = left / 2 / 4096 * 4096;
	if (reserved && bytes < CALIBRATE_LEAST)
		reserved = error_set(&bad, CODE_MACHINE, "%s has %zu MiB free beside the ops' workspace: to calibrate takes %d", dev_name(o->dev),
				     left >> 20, 2 * CALIBRATE_LEAST >> 20);
	if (!reserved || !dev_take(o->dev, &memory, bytes, &bad))
		memory = NULL;
	if (!comm_agree(o->world, &bad)) {
		*e = bad;
		return false;
	}
	arena_init(&b.arena, "calibration", memory, bytes);
	char name[sizeof h->name] = "";
	gethostname(name, sizeof name - 1);
	hardware_init(h, name);
	h->cpu = cpu;
	measure_device(h, &b);
	if (cpu) {
		set_cpu(h);
	} else {
		set_card(h, o->dev, &limits);
		measure_launch(h, &b);
	}
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		calibrate_ops(&b, types[i]);
	set_peaks(h, o->dev);
	bool good = calibrate_links(&b, o->world, o->node, e);
	if (cpu)
		set_cpu_memory(h);
	if (comm_rank(o->world) == 0)
		measure_disk(o->folder);
	dev_give_back(o->dev, memory);
	comm_host_broadcast(o->world, h, sizeof *h, 0);
	return good;
}

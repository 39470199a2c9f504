#include "cuda/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card.h"
#include "cudnn_attention.h"
#include "place.h"

enum { DRIVER_LEAST = 12000 }; /* CUDA 12.0 */

/* Dense peaks of NVIDIA's data sheets (SXM parts), FLOP/s: F16 and BF16, then F32. */
static const struct {
	const char *name;
	double half, single;
} peaks[] = {
	{"A100", 312e12, 19.5e12}, {"A800", 312e12, 19.5e12}, {"H100 PCIe", 756e12, 51e12}, {"H100", 989e12, 67e12},
	{"H800", 989e12, 67e12}, {"H200", 989e12, 67e12}, {"B200", 2250e12, 75e12},
};

static void close_card(struct device *dev)
{
	struct card *c = card_of(dev);
	cudaDeviceSynchronize();
	graphs_close(c->graphs);
	card_give_back_all(dev);
	attention_pick_close(c->attention);
	gemm_close(c->gemm);
	card_close_queues(c);
	free(c);
}

/* How many cards there are; false: why none can be used. */
static bool have_cards(int *count, struct error *e)
{
	int driver = 0, runtime = 0;
	cudaError_t found = cudaGetDeviceCount(count);
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (driver == 0)
		return error_set(e, CODE_MACHINE, "cuda: no card: this machine has no NVIDIA driver");
	if (found == cudaErrorInsufficientDriver || driver < DRIVER_LEAST)
		return error_set(e, CODE_MACHINE, "cuda: the driver is for CUDA %d.%d, this program was built with %d.%d: update the "
				 "driver, or build with an older toolkit", driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	if (found == cudaErrorNoDevice || (found == cudaSuccess && *count == 0))
		return error_set(e, CODE_MACHINE, "cuda: no card: the driver sees none");
	if (found != cudaSuccess)
		return error_set(e, CODE_MACHINE, "cuda: no card: %s", cudaGetErrorString(found));
	return true;
}

/* Cards are given out by the rank's place on its machine; with more ranks than cards they share. */
static bool choose(struct device *dev, struct card *c, const struct dev_options *options, struct error *e)
{
	struct place place = {.local_rank = options->local_rank, .local_size = options->local_size > 0 ? options->local_size : 1};
	cudaError_t found = cudaSuccess;
	if (!have_cards(&place.count, e))
		return false;
	if (place.count > PLACE_CARDS)
		place.count = PLACE_CARDS;
	for (int i = 0; i < place.count && found == cudaSuccess; i++)
		found = cudaDeviceGetPCIBusId(place.bus[i], PLACE_BUS, i);
	if (found != cudaSuccess)
		return error_set(e, CODE_MACHINE, "cuda: where the cards are cannot be found out: %s", cudaGetErrorString(found));
	struct cudaDeviceProp properties;
	c->number = place_take(&place);
	found = cudaSetDevice(c->number);
	if (found == cudaSuccess)
		found = cudaGetDeviceProperties(&properties, c->number);
	if (found != cudaSuccess)
		return error_set(e, CODE_MACHINE, "cuda: card %d: %s", c->number, cudaGetErrorString(found));
	snprintf(c->name, sizeof c->name, "%.60s", properties.name);
	c->major = properties.major;
	c->minor = properties.minor;
	if (c->major < 8)
		return error_set(e, CODE_MACHINE, "cuda: card %d (%s) has compute capability %d.%d, 8.0 is the least", c->number, c->name,
				 c->major, c->minor);
	found = kernel_load();
	if (found != cudaSuccess)
		return error_set(e, CODE_MACHINE, "cuda: card %d (%s): this program's kernels cannot be loaded (%s): build with -Dcards=%d%d",
				 c->number, c->name, cudaGetErrorString(found), c->major, c->minor);
	char host[48];
	if (gethostname(host, sizeof host) != 0)
		return error_set(e, CODE_MACHINE, "cuda: this machine's name cannot be found out");
	host[sizeof host - 1] = '\0';
	snprintf(dev->identity, sizeof dev->identity, "%s:%s", host, place.bus[c->number]);
	return true;
}

/* Queues the kernels of an op. */
static void run_op(void *card, enum graphs_op op, const void *a)
{
	struct card *c = card;
	switch (op) {
#define RUN(name)                                  \
	case GRAPHS_##name:                        \
		kernel_##name(&c->place, a);       \
		break;
		KERNELS_DIRECT(RUN)
#undef RUN
	case GRAPHS_attention_forward:
		attention_pick_forward(c->attention, &c->place, a);
		break;
	case GRAPHS_attention_backward:
		attention_pick_backward(c->attention, &c->place, a);
		break;
	case GRAPHS_gemm:
		gemm_run(c->gemm, &c->place, a);
		break;
	}
}

/* Every op first moves host-driven communication forward. */
#define CARD_OP(name)                                                                     \
	static void card_##name(struct device *dev, const struct op_##name *a)            \
	{                                                                                 \
		card_poll(dev);                                                           \
		if (!graphs_keep(card_of(dev)->graphs, GRAPHS_##name, a, sizeof *a))      \
			run_op(card_of(dev), GRAPHS_##name, a);                           \
	}
OPS(CARD_OP)
#undef CARD_OP

#define CARD_ENTRY(name) .name = card_##name,
static const struct ops ops_cuda = {OPS(CARD_ENTRY)};
#undef CARD_ENTRY

static bool open_card(struct device *dev, const struct dev_options *options, struct error *e)
{
	struct card *c = calloc(1, sizeof *c);
	struct attention_other attention;
	size_t room = 0, all = 0;
	if (!c)
		return error_set(e, CODE_MACHINE, "out of memory");
	if (!choose(dev, c, options, e) || !gemm_open(&c->gemm, 10 * c->major + c->minor, e)) {
		free(c);
		return false;
	}
	dev->impl = c;
	dev->ops = &ops_cuda;
	dev->threads = 0;
	card_open_queues(c);
	c->place.stream = c->streams[Q_COMPUTE].stream;
	bool other = cudnn_attention_open(&attention, 10 * c->major + c->minor, c->place.stream);
	c->attention = attention_pick_open(other ? &attention : NULL);
	if (options->graphs && !graphs_open(&c->graphs, &(struct graphs_options){
		    .stream = c->place.stream, .run = run_op, .context = c}, e)) {
		close_card(dev);
		return false;
	}
	dev->scalars = c->place.scalars = card_take(dev, sizeof *dev->scalars);
	if (!dev->scalars) {
		error_set(e, CODE_MACHINE, "cuda: card %d (%s) has no memory left", c->number, c->name);
		close_card(dev);
		return false;
	}
	CALL(cudaMemGetInfo(&room, &all));
	dev->room = room;
	snprintf(dev->text, sizeof dev->text, "cuda (%s, number %d, %.1f GiB)", c->name, c->number, (double)all * 0x1p-30);
	return true;
}

static bool reserve(struct device *dev, const struct dev_limits *limits, struct error *e)
{
	dev->workspace = workspace_cuda(limits, attention_pick_workspace(card_of(dev)->attention, limits));
	attention_pick_reserved(card_of(dev)->attention, dev->workspace);
	card_of(dev)->place.workspace = card_take(dev, dev->workspace);
	if (!card_of(dev)->place.workspace)
		return error_set(e, CODE_MACHINE, "%s: no room for %zu bytes of workspace", dev->text, dev->workspace);
	return true;
}

static double peak_flops(const struct device *dev, enum dtype compute)
{
	for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
		if (strstr(card_of(dev)->name, peaks[i].name))
			return compute == F32 ? peaks[i].single : compute == F64 ? 0 : peaks[i].half;
	}
	return 0;
}

static bool rehearse(struct device *dev, bool on)
{
	card_of(dev)->rehearsing = on;
	attention_pick_settle(card_of(dev)->attention, !on);
	return true;
}

static bool begin(struct device *dev, const struct stretch *s)
{
	graphs_begin(card_of(dev)->graphs);
	return true;
}

static void end(struct device *dev)
{
	graphs_end(card_of(dev)->graphs);
}

static void choose_ways(struct device *dev, struct tuning *own, bool timed)
{
	gemm_choose(card_of(dev)->gemm, &card_of(dev)->place, own, timed);
	attention_pick_choose(card_of(dev)->attention, &card_of(dev)->place, own, timed);
}

static void told(struct device *dev, const struct tuning *choices)
{
	gemm_told(card_of(dev)->gemm, choices);
	attention_pick_told(card_of(dev)->attention, choices);
	graphs_forget(card_of(dev)->graphs);
}

const struct backend backend_cuda = {
	.name = "cuda",
	.apart = true,
	.graphs = true,
	.open = open_card,
	.reserve = reserve,
	.close = close_card,
	.take = card_take,
	.give_back = card_give_back,
	.take_host = card_take_host,
	.give_back_host = card_give_back_host,
	.peak_flops = peak_flops,
	.mark = card_mark,
	.wait = card_wait,
	.finish = card_finish,
	.write = card_write,
	.read = card_read,
	.copy = card_copy,
	.zero = card_zero,
	.begin = begin,
	.end = end,
	.post = card_post,
	.rehearse = rehearse,
	.choose = choose_ways,
	.told = told,
};

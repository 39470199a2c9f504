#include <math.h>

#include "dev/cost/hardware.h"

static const double giga = 1e9, tera = 1e12, mega = 1e6, micro = 1e-6;

double hardware_launch(const struct hardware *h)
{
	return h->launch_us.value * micro;
}

static double streamed(const struct hardware *h, double bytes)
{
	return bytes / (h->memory_gbps.value * giga * h->memory_efficiency.value);
}

double hardware_stream(const struct hardware *h, double bytes)
{
	return streamed(h, bytes) + h->kernel_us.value * micro;
}

/* Tiles that libraries have, and the share of the best rate that each reaches where it fills the units: small ones read
 * each operand more often. */
static const struct tile {
	double m, n, worth;
} tiles[] = {{128, 256, 1}, {256, 128, 1}, {128, 128, 0.95}, {64, 128, 0.78}, {128, 64, 0.78}, {64, 64, 0.6}};
enum { TILES = sizeof tiles / sizeof *tiles, SPLITS = 8 };

/* With one tile shape, k cut into `splits` whose partial sums are added in FP32. */
static double tiled(const struct hardware *h, double peak, const struct tile *tile, double count, double m, double n, double k,
		    int splits)
{
	double all = ceil(m / tile->m) * ceil(n / tile->n) * count * splits;
	double waves = ceil(all / h->units.value);
	double steps = ceil(k / splits) + h->gemm_depth.value;
	double rate = peak * h->gemm_efficiency.value * tile->worth / h->units.value;
	double sums = splits > 1 ? streamed(h, 4 * m * n * count * splits) : 0;
	return waves * 2 * tile->m * tile->n * steps / rate + sums;
}

static double computed(const struct hardware *h, double peak, double count, double m, double n, double k)
{
	double best = INFINITY;
	if (h->units.value == 0)
		return 2 * count * m * n * (k + h->gemm_depth.value) / (peak * h->gemm_efficiency.value);
	for (int i = 0; i < TILES; i++)
		for (int splits = 1; splits <= SPLITS; splits *= 2)
			best = fmin(best, tiled(h, peak, &tiles[i], count, m, n, k, splits));
	return best;
}

/* Units that multiply 16-bit matrices take rows that begin at 16 bytes; other products are computed as FP32 ones are, at half
 * of that peak. */
static double misaligned(const struct hardware *h, double count, double m, double n, double k)
{
	return 2 * count * m * n * k / (h->peak_fp32_tflops.value * tera * 0.5);
}

double hardware_gemm(const struct hardware *h, enum dtype t, int64_t count, int64_t m, int64_t n, int64_t k)
{
	double M = (double)m, N = (double)n, K = (double)k, many = (double)count;
	double measured = hardware_rate(&h->gemm[hardware_type(t)], 2 * many * M * N * K);
	if (measured > 0)
		return 2 * many * M * N * K / (measured * tera);
	double bytes = (double)dtype_size(t) * many * (M * K + K * N + M * N);
	bool aligned = h->units.value == 0 || dtype_size(t) != 2 || (n % 8 == 0 && k % 8 == 0);
	double products = aligned ? computed(h, hardware_peak(h, t), many, M, N, K) : misaligned(h, many, M, N, K);
	return fmax(products, streamed(h, bytes)) + h->kernel_us.value * micro;
}

/* Long sequences of wide heads reach the best rate; narrow heads leave less to compute for each exponential. */
double hardware_attention(const struct hardware *h, enum dtype t, double flops, int64_t head_size, int64_t sequence, bool backward)
{
	double best = backward ? h->attention_backward.value : h->attention_forward.value;
	double length = (double)sequence / ((double)sequence + h->attention_length.value);
	double width = head_size < 128 ? sqrt((double)head_size / 128) : 1;
	const struct hardware_curve *curve = &h->op[hardware_type(t)][backward ? OP_attention_backward : OP_attention_forward];
	double measured = hardware_rate(curve, flops);
	if (measured > 0)
		return flops / (measured * tera);
	return flops / (hardware_peak(h, t) * best * length * width) + h->kernel_us.value * micro;
}

/* Bytes a second that each of the group's groups_in_node rings has between nodes: its share of all cards, as many cards as
 * its members can reach, no more than the links inside give. */
static double between_nodes(const struct hardware *h, struct hardware_group g)
{
	double cards = h->nics_per_node.value / g.groups_in_node;
	double reach = g.in_node * fmax(1, h->nics_per_node.value / h->devices_per_node.value);
	double rate = fmin(cards, reach) * h->network.gbps.value * giga * h->network.efficiency.value;
	return g.in_node > 1 ? fmin(rate, h->node.gbps.value * giga * h->node.efficiency.value) : rate;
}

double hardware_collective(const struct hardware *h, enum hardware_move move, struct hardware_group g, double bytes)
{
	if (g.size <= 1)
		return 0;
	double passes = (double)(g.size - 1) / g.size * (move == HARDWARE_ALL_REDUCE ? 2 : 1);
	bool apart = g.size > g.in_node;
	const struct hardware_link *link = apart ? &h->network : &h->node;
	double rate = apart ? between_nodes(h, g) : link->gbps.value * giga * link->efficiency.value;
	double full = bytes + link->half_mb.value * mega, floor = link->floor_us.value * micro;
	if (!apart)
		return floor + full * passes / rate;
	/* Around all nodes in turn, or down and up a tree of them, which only all-reduce and broadcast have. */
	double nodes = ceil((double)g.size / g.in_node), hop = link->latency_us.value * micro;
	double turns = move == HARDWARE_ALL_REDUCE ? 2 : 1;
	double ring = turns * (nodes - 1) * hop + full * passes / rate;
	double tree = turns * ceil(log2(nodes)) * hop + full * turns / rate;
	bool has_tree = move == HARDWARE_ALL_REDUCE || move == HARDWARE_BROADCAST;
	return floor + (has_tree ? fmin(ring, tree) : ring);
}

double hardware_exchange(const struct hardware *h, bool same_node, double bytes)
{
	const struct hardware_link *link = same_node ? &h->node : &h->network;
	double share = same_node ? 1 : fmin(1, h->nics_per_node.value / h->devices_per_node.value);
	return link->latency_us.value * micro + bytes / (link->gbps.value * giga * share * link->pair.value);
}

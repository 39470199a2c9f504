#include "plan/calibrate_bench.h"

/* Sizes of what is sent, in bytes, from FEWEST times STEP each. */
enum { FEWEST = 1 << 10, STEP = 8, SIZES = 6, MOST = 32 << 20 };
_Static_assert(2 * MOST <= CALIBRATE_LEAST, "a message out and one in");

/* One exchange of each kind, all ranks of the group at it. */
static void all_reduce(struct comm *c, struct tensor out, struct tensor in)
{
	comm_all_reduce(c, Q_DATA, out);
}

static void send_on(struct comm *c, struct tensor out, struct tensor in)
{
	int size = comm_size(c), rank = comm_rank(c);
	struct transfer list[] = {
		{.peer = (rank + 1) % size, .kind = TRANSFER_SEND, .tensor = out},
		{.peer = (rank + size - 1) % size, .kind = TRANSFER_RECEIVE, .tensor = in},
	};
	comm_exchange(c, Q_DATA, list, 2);
}

/* Seconds of one. Every rank must make as many calls: rounds are counted, not timed. */
static double timed(struct calibrate_bench *b, struct comm *c, void (*f)(struct comm *c, struct tensor out, struct tensor in), int64_t bytes)
{
	size_t before = b->arena.used;
	struct tensor out = arena_1d(&b->arena, F32, bytes / 4), in = arena_1d(&b->arena, F32, bytes / 4);
	double rounds[CALIBRATE_ROUNDS];
	int calls = bytes > 1 << 20 ? 1 : 4;
	comm_barrier(c);
	for (int i = -1; i < CALIBRATE_ROUNDS; i++) {
		double begin = calibrate_now(false, 1);
		for (int k = 0; k < calls; k++)
			f(c, out, in);
		dev_finish(b->dev, dev_mark(b->dev, Q_DATA));
		if (i >= 0)
			rounds[i] = (calibrate_now(false, 1) - begin) / calls;
	}
	b->arena.used = before;
	return calibrate_median(rounds, CALIBRATE_ROUNDS);
}

struct calibrate_line calibrate_fit(const double *size, const double *seconds, int count)
{
	double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
	for (int i = 0; i < count; i++) {
		double a = 1 / seconds[i], b = size[i] / seconds[i];
		uu += a * a;
		uv += a * b;
		vv += b * b;
		u += a;
		v += b;
	}
	double det = uu * vv - uv * uv;
	struct calibrate_line l = {(u * vv - v * uv) / det, (v * uu - u * uv) / det, 0};
	if (!(l.floor > 0 && l.slope > 0))
		l = (struct calibrate_line){0, v / vv, 0};
	for (int i = 0; i < count; i++)
		l.worst = fmax(l.worst, fabs((l.floor + l.slope * size[i]) / seconds[i] - 1));
	return l;
}

static struct calibrate_line line_of(struct calibrate_bench *b, struct comm *c, void (*f)(struct comm *c, struct tensor out, struct tensor in))
{
	double size[SIZES], seconds[SIZES];
	int64_t bytes = FEWEST;
	for (int i = 0; i < SIZES; i++, bytes *= STEP) { /* to MOST */
		size[i] = (double)bytes;
		seconds[i] = timed(b, c, f, bytes);
	}
	return calibrate_fit(size, seconds, SIZES);
}

#define SUMS "all-reduces of 1 KiB to 32 MiB over %d ranks: a line within %.0f%%"
#define MESSAGES "messages of 1 KiB to 32 MiB to the next of %d ranks: a line within %.0f%%"

static void measure(struct hardware_link *l, struct calibrate_bench *b, struct comm *c)
{
	double n = comm_size(c);
	struct calibrate_line sum = line_of(b, c, all_reduce), message = line_of(b, c, send_on);
	double bus = 2 * (n - 1) / n / sum.slope * 1e-9, pair = 1 / message.slope * 1e-9;
	double best = fmax(bus, pair);
	calibrate_set(&l->gbps, best, MARK_MEASURED, "the better of sums and messages over %d ranks", comm_size(c));
	calibrate_set(&l->efficiency, bus / best, MARK_MEASURED, SUMS, comm_size(c), 100 * sum.worst);
	calibrate_set(&l->pair, pair / best, MARK_MEASURED, MESSAGES, comm_size(c), 100 * message.worst);
	calibrate_set(&l->floor_us, sum.floor * 1e6, MARK_MEASURED, SUMS, comm_size(c), 100 * sum.worst);
	calibrate_set(&l->latency_us, message.floor * 1e6, MARK_MEASURED, MESSAGES, comm_size(c), 100 * message.worst);
	calibrate_set(&l->half_mb, 0, MARK_MEASURED, "in link_floor_us");
}

/* Inside nodes among the ranks of each; between them among those of the same place on each, all places at once, so that a
 * number is what is left for a rank while its neighbours send too. One rank measures no link. */
bool calibrate_links(struct calibrate_bench *b, struct comm *world, int node, struct error *e)
{
	struct hardware *h = b->h;
	struct comm *inside, *between;
	int rank = comm_rank(world);
	if (!comm_split(&inside, world, "node", node, rank, e) || !comm_split(&between, world, "network", comm_rank(inside), rank, e))
		return false;
	calibrate_set(&h->devices_per_node, comm_size(inside), MARK_MEASURED, "ranks a node of this job");
	calibrate_set(&h->nics_per_node, comm_size(inside), MARK_ASSUMED, "a rank's share of what its node sends");
	calibrate_set(&h->node.gbps, h->memory_gbps.value / 2, MARK_ASSUMED, "one rank a node: no link to measure, as a copy of memory");
	if (comm_size(inside) > 1)
		measure(&h->node, b, inside);
	h->network = h->node;
	calibrate_set(&h->network.gbps, h->node.gbps.value, MARK_ASSUMED, "one node: as inside it");
	if (comm_size(between) > 1)
		measure(&h->network, b, between);
	comm_close(between);
	comm_close(inside);
	return true;
}

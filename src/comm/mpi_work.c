#include "comm/mpi.h"

#include <string.h>

#include "comm/mpi_cut.h"
#include "comm/sum.h"

static struct mpi_lane *lane_of(const struct mpi_work *w)
{
	struct mpi_group *g = w->comm->impl;
	return &g->world->lanes[w->queue];
}

static MPI_Comm mpi_of(const struct mpi_work *w)
{
	return ((struct mpi_group *)w->comm->impl)->mpi;
}

static MPI_Datatype type_of(enum dtype dtype)
{
	switch (dtype_size(dtype)) {
	case 1:
		return MPI_BYTE;
	case 2:
		return MPI_UINT16_T;
	case 4:
		return MPI_UINT32_T;
	default:
		return MPI_UINT64_T;
	}
}

static int tag_of(const struct mpi_work *w)
{
	return (int)w->queue * KINDS + (int)w->kind;
}

static void *element(struct tensor t, int64_t i)
{
	return (char *)t.data + (size_t)i * dtype_size(t.dtype);
}

static void send(struct mpi_work *w, int peer, const void *data, enum dtype dtype, int64_t count)
{
	struct mpi_lane *lane = lane_of(w);
	check(lane->pending < lane->room && count <= INT32_MAX);
	lane->expected[lane->pending] = -1;
	mpi_must(MPI_Isend(data, (int)count, type_of(dtype), peer, tag_of(w), mpi_of(w), &lane->requests[lane->pending++]),
		 w->base.call, w->base.group);
}

static void receive(struct mpi_work *w, int peer, void *data, enum dtype dtype, int64_t count)
{
	struct mpi_lane *lane = lane_of(w);
	check(lane->pending < lane->room && count <= INT32_MAX);
	lane->expected[lane->pending] = count * (int64_t)dtype_size(dtype);
	mpi_must(MPI_Irecv(data, (int)count, type_of(dtype), peer, tag_of(w), mpi_of(w), &lane->requests[lane->pending++]),
		 w->base.call, w->base.group);
}

/* Whether all that was posted in this round is done. What came must be as long as it was said to be: MPI itself
 * minds only what is too long. */
static bool arrived(struct mpi_work *w)
{
	struct mpi_lane *lane = lane_of(w);
	int done = 0, rc = MPI_Testall(lane->pending, lane->requests, &done, lane->statuses);
	if (rc == MPI_ERR_IN_STATUS)
		for (int i = 0; i < lane->pending; i++)
			if (lane->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
				mpi_must(lane->statuses[i].MPI_ERROR, w->base.call, w->base.group);
	mpi_must(rc, w->base.call, w->base.group);
	if (!done)
		return false;
	for (int i = 0; i < lane->pending; i++) {
		MPI_Count came;
		if (lane->expected[i] < 0)
			continue;
		MPI_Get_elements_x(&lane->statuses[i], MPI_BYTE, &came);
		if (came != lane->expected[i])
			die(CODE_MACHINE, "%s in group %s: its rank %d sent %lld bytes where %lld were due", w->base.call,
			    w->base.group, lane->statuses[i].MPI_SOURCE, (long long)came, (long long)lane->expected[i]);
	}
	lane->pending = 0;
	return true;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Elements of one rank's slice, such that what all others send of it fits the scratch. */
static int64_t slice_room(const struct mpi_work *w, enum dtype dtype)
{
	return mpi_cut_room(LANE_SCRATCH, w->comm->size, dtype_size(dtype));
}

/* Posts receives of `count` elements from every other rank into the scratch and lists, in rank order, where each
 * rank's elements are; this rank's are at `own`. */
static void receive_inputs(struct mpi_work *w, const void *own, enum dtype dtype, int64_t count)
{
	struct mpi_lane *lane = lane_of(w);
	char *scratch = lane->scratch;
	for (int r = 0; r < w->comm->size; r++) {
		if (r == w->comm->rank) {
			lane->inputs[r] = own;
			continue;
		}
		if (count)
			receive(w, r, scratch, dtype, count);
		lane->inputs[r] = scratch;
		scratch += (size_t)count * dtype_size(dtype);
	}
}

/* All-reduce. A round is cut into one slice a rank. Phase 0 sends each rank its slice and receives this rank's from
 * all; 1 adds and sends the sum to all, receiving theirs in place; 2 goes on to the next round. A short tensor takes
 * phase 3 instead of 1: everybody has received everything and adds it all. */
static int64_t slice_begin(const struct mpi_work *w, int r)
{
	int64_t slice = mpi_cut_slice(w->round, w->comm->size, slice_room(w, w->out.dtype));
	return least(slice * r, w->round);
}

static int64_t slice_count(const struct mpi_work *w, int r)
{
	return slice_begin(w, r + 1) - slice_begin(w, r);
}

static bool all_reduce(struct mpi_work *w)
{
	struct mpi_lane *lane = lane_of(w);
	struct tensor t = w->out;
	int n = w->comm->size, rank = w->comm->rank;
	int64_t count = tensor_count(t), bytes = (int64_t)tensor_bytes(t);

	for (;;) {
		int64_t first = w->at + slice_begin(w, rank);
		switch (w->phase) {
		case 0:
			if (w->at == count)
				return true;
			w->round = least(count - w->at, slice_room(w, t.dtype) * n);
			if (bytes <= AT_ONCE && bytes * (n - 1) <= LANE_SCRATCH) {
				receive_inputs(w, t.data, t.dtype, count);
				for (int r = 0; r < n; r++)
					if (r != rank)
						send(w, r, t.data, t.dtype, count);
				w->phase = 3;
				break;
			}
			first = w->at + slice_begin(w, rank);
			receive_inputs(w, element(t, first), t.dtype, slice_count(w, rank));
			for (int r = 0; r < n; r++)
				if (r != rank && slice_count(w, r))
					send(w, r, element(t, w->at + slice_begin(w, r)), t.dtype, slice_count(w, r));
			w->phase = 1;
			break;
		case 1:
			if (!arrived(w))
				return false;
			sum_ranks(element(t, first), t.dtype, lane->inputs, n, slice_count(w, rank));
			for (int r = 0; r < n; r++) {
				if (r == rank)
					continue;
				if (slice_count(w, r))
					receive(w, r, element(t, w->at + slice_begin(w, r)), t.dtype, slice_count(w, r));
				if (slice_count(w, rank))
					send(w, r, element(t, first), t.dtype, slice_count(w, rank));
			}
			w->phase = 2;
			break;
		case 2:
			if (!arrived(w))
				return false;
			w->at += w->round;
			w->phase = 0;
			break;
		default:
			if (!arrived(w))
				return false;
			sum_ranks(t.data, t.dtype, lane->inputs, n, count);
			return true;
		}
	}
}

/* Reduce-scatter: in rounds over the elements of a slice: send each rank its part, add what comes. */
static bool reduce_scatter(struct mpi_work *w)
{
	struct mpi_lane *lane = lane_of(w);
	struct tensor in = w->in, out = w->out;
	int n = w->comm->size, rank = w->comm->rank;
	int64_t slice = tensor_count(out);

	for (;;) {
		if (w->phase == 1) {
			if (!arrived(w))
				return false;
			sum_ranks(element(out, w->at), in.dtype, lane->inputs, n, w->round);
			w->at += w->round;
		}
		if (w->at == slice)
			return true;
		w->phase = 1;
		w->round = least(slice - w->at, slice_room(w, in.dtype));
		receive_inputs(w, element(in, slice * rank + w->at), in.dtype, w->round);
		for (int r = 0; r < n; r++)
			if (r != rank)
				send(w, r, element(in, slice * r + w->at), in.dtype, w->round);
	}
}

static bool all_gather(struct mpi_work *w)
{
	struct tensor in = w->in, out = w->out;
	int n = w->comm->size, rank = w->comm->rank;
	int64_t slice = tensor_count(in);

	for (;;) {
		if (w->phase == 1) {
			if (!arrived(w))
				return false;
			w->at += w->round;
		} else if (in.data != element(out, slice * rank)) {
			memcpy(element(out, slice * rank), in.data, tensor_bytes(in));
		}
		if (w->at == slice)
			return true;
		w->phase = 1;
		w->round = least(slice - w->at, ROUND_MAX);
		for (int r = 0; r < n; r++)
			if (r != rank)
				receive(w, r, element(out, slice * r + w->at), in.dtype, w->round);
		for (int r = 0; r < n; r++)
			if (r != rank)
				send(w, r, element(in, w->at), in.dtype, w->round);
	}
}

/* Broadcast along a binomial tree over ranks counted from the root: v gets from v without its lowest bit, and passes
 * on to v plus each lower power of two. Phase 0 receives, 1 sends, 2 goes on to the next round. */
static bool broadcast(struct mpi_work *w)
{
	struct tensor t = w->out;
	int n = w->comm->size, v = (w->comm->rank - w->root + n) % n;
	int64_t count = tensor_count(t);

	for (;;) {
		if (w->phase > 0 && !arrived(w))
			return false;
		if (w->phase == 0) {
			if (w->at == count)
				return true;
			w->round = least(count - w->at, ROUND_MAX);
			if (v)
				receive(w, ((v & (v - 1)) + w->root) % n, element(t, w->at), t.dtype, w->round);
			w->phase = 1;
		} else if (w->phase == 1) {
			for (int bit = 1; bit < n && !(v & bit); bit <<= 1)
				if (v + bit < n)
					send(w, (v + bit + w->root) % n, element(t, w->at), t.dtype, w->round);
			w->phase = 2;
		} else {
			w->at += w->round;
			w->phase = 0;
		}
	}
}

static bool exchange(struct mpi_work *w)
{
	if (w->phase == 1)
		return arrived(w);
	for (int i = 0; i < w->count; i++) {
		const struct transfer *t = &w->transfers[i];
		if (t->kind == TRANSFER_RECEIVE)
			receive(w, t->peer, t->tensor.data, t->tensor.dtype, tensor_count(t->tensor));
	}
	for (int i = 0; i < w->count; i++) {
		const struct transfer *t = &w->transfers[i];
		if (t->kind == TRANSFER_SEND)
			send(w, t->peer, t->tensor.data, t->tensor.dtype, tensor_count(t->tensor));
	}
	w->phase = 1;
	return false;
}

static bool (*const advances[KINDS])(struct mpi_work *w) = {
	all_reduce, all_gather, reduce_scatter, broadcast, exchange, all_gather, broadcast,
};

bool mpi_advance(struct work *base)
{
	struct mpi_work *w = (struct mpi_work *)base;
	struct mpi_world *world = ((struct mpi_group *)w->comm->impl)->world;
	if (!advances[w->kind](w))
		return false;
	w->next_free = world->pool;
	world->pool = w;
	return true;
}

#include "comm/mpi.h"

/* A call on memory apart in pieces: what the piece needs goes down to the lane's stage, the call runs there, what it gives
 * goes up. All three are queued on the call's queue, which keeps their order and lets the next piece have the stage. */

static char *stage_of(const struct comm *c, enum queue q)
{
	struct mpi_group *g = c->impl;
	return g->world->lanes[q].stage;
}

/* Elements of a piece, of which the stage holds `parts`. */
static int64_t piece_room(enum dtype dtype, int parts)
{
	int64_t room = LANE_STAGE / (int64_t)dtype_size(dtype) / parts;
	check(room > 0);
	return room >= 64 ? room / 64 * 64 : room;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* `count` elements of t from element `first` on. */
static struct tensor part(struct tensor t, int64_t first, int64_t count)
{
	return tensor_1d((char *)t.data + (size_t)first * dtype_size(t.dtype), t.dtype, count);
}

void mpi_stage_all_reduce(struct comm *c, enum queue q, struct tensor t)
{
	int64_t count = tensor_count(t), room = piece_room(t.dtype, 1);
	for (int64_t at = 0; at < count; at += room) {
		struct tensor piece = part(t, at, least(room, count - at));
		struct tensor host = tensor_1d(stage_of(c, q), t.dtype, tensor_count(piece));
		dev_read(c->dev, q, host.data, piece);
		mpi_host_all_reduce(c, q, host);
		dev_write(c->dev, q, piece, host.data);
	}
}

void mpi_stage_all_gather(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	int64_t slice = tensor_count(in), room = piece_room(in.dtype, c->size);
	for (int64_t at = 0; at < slice; at += room) {
		int64_t n = least(room, slice - at);
		struct tensor host = tensor_2d(stage_of(c, q), in.dtype, c->size, n);
		struct tensor own = tensor_rows(host, c->rank, 1);
		dev_read(c->dev, q, own.data, part(in, at, n));
		mpi_host_all_gather(c, q, host, own);
		for (int r = 0; r < c->size; r++)
			if (r != c->rank)
				dev_write(c->dev, q, part(out, slice * r + at, n), tensor_rows(host, r, 1).data);
		if (in.data != (char *)out.data + (size_t)c->rank * tensor_bytes(in))
			dev_copy(c->dev, q, part(out, slice * c->rank + at, n), part(in, at, n));
	}
}

void mpi_stage_reduce_scatter(struct comm *c, enum queue q, struct tensor out, struct tensor in)
{
	int64_t slice = tensor_count(out), room = piece_room(in.dtype, c->size);
	for (int64_t at = 0; at < slice; at += room) {
		int64_t n = least(room, slice - at);
		struct tensor host = tensor_2d(stage_of(c, q), in.dtype, c->size, n);
		struct tensor own = tensor_rows(host, c->rank, 1);
		for (int r = 0; r < c->size; r++)
			dev_read(c->dev, q, tensor_rows(host, r, 1).data, part(in, slice * r + at, n));
		mpi_host_reduce_scatter(c, q, own, host);
		dev_write(c->dev, q, part(out, at, n), own.data);
	}
}

void mpi_stage_broadcast(struct comm *c, enum queue q, struct tensor t, int root)
{
	int64_t count = tensor_count(t), room = piece_room(t.dtype, 1);
	for (int64_t at = 0; at < count; at += room) {
		struct tensor piece = part(t, at, least(room, count - at));
		struct tensor host = tensor_1d(stage_of(c, q), t.dtype, tensor_count(piece));
		if (c->rank == root)
			dev_read(c->dev, q, host.data, piece);
		mpi_host_broadcast(c, q, host, root);
		if (c->rank != root)
			dev_write(c->dev, q, piece, host.data);
	}
}

/* In rounds: round k moves the k-th piece of every transfer that has one. Pieces have the same bytes whatever else the
 * call moves, so both ends of a transfer cut it alike. */
void mpi_stage_exchange(struct comm *c, enum queue q, const struct transfer *transfers, int count)
{
	enum { PIECE = LANE_STAGE / EXCHANGE_MAX };
	struct transfer host[EXCHANGE_MAX];
	struct tensor piece[EXCHANGE_MAX];

	for (int64_t round = 0;; round++) {
		int n = 0;
		for (int i = 0; i < count; i++) {
			struct tensor t = transfers[i].tensor;
			int64_t room = PIECE / (int64_t)dtype_size(t.dtype), at = round * room;
			if (at >= tensor_count(t))
				continue;
			piece[n] = part(t, at, least(room, tensor_count(t) - at));
			host[n] = transfers[i];
			host[n].tensor = tensor_1d(stage_of(c, q) + (size_t)n * PIECE, t.dtype, tensor_count(piece[n]));
			n++;
		}
		if (n == 0)
			return;
		for (int i = 0; i < n; i++)
			if (host[i].kind == TRANSFER_SEND)
				dev_read(c->dev, q, host[i].tensor.data, piece[i]);
		mpi_host_exchange(c, q, host, n);
		for (int i = 0; i < n; i++)
			if (host[i].kind == TRANSFER_RECEIVE)
				dev_write(c->dev, q, piece[i], host[i].tensor.data);
	}
}

#include "graphs.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "card.h"

enum {
	LEAST = 3, /* ops of a list: one or two are launched as fast alone */
	TABLE = 8192, LISTS = TABLE / 2, LISTS_BYTES = 64 << 20,
	ROOM = 4096, /* that a list begins with */
	MEMORY_LEFT = 256 << 20, /* free on the card, for what the driver and libraries take on their own */
};

/* An op that is kept; its arguments are behind it. */
struct kept {
	enum graphs_op op;
	int bytes; /* a multiple of 8 */
};

struct list {
	unsigned char *ops; /* NULL: no list */
	size_t bytes;
	uint64_t hash;
	int times; /* that it was carried out op by op */
	cudaGraphExec_t graph; /* NULL: none yet */
};

struct graphs {
	struct graphs_options o;
	bool on; /* inside a stretch */
	struct list now; /* what is kept */
	int now_count;
	size_t now_room;
	struct list lists[TABLE]; /* open addressing */
	int count;
	size_t bytes; /* of all lists */
	int due;      /* lists that came twice and are no graphs yet */
	bool full;    /* the table is, which was said */
	bool poor;    /* the card is, which was said */
	int64_t graphs, launches, ops_launched, ops;
	size_t memory; /* of the card, that graphs took */
};

bool graphs_open(struct graphs **out, const struct graphs_options *o, struct error *e)
{
	struct graphs *g = calloc(1, sizeof *g);
	if (!g)
		return error_set(e, CODE_MACHINE, "out of memory");
	g->o = *o;
	if (g->o.most == 0 || g->o.most > LISTS)
		g->o.most = LISTS;
	*out = g;
	return true;
}

void graphs_forget(struct graphs *g)
{
	if (!g)
		return;
	for (int i = 0; i < TABLE; i++) {
		if (g->lists[i].graph)
			CALL(cudaGraphExecDestroy(g->lists[i].graph));
		free(g->lists[i].ops);
		g->lists[i] = (struct list){0};
	}
	g->count = g->due = 0;
	g->bytes = 0;
}

void graphs_close(struct graphs *g)
{
	if (!g)
		return;
	log_info("device.graphs: %lld graphs took about %.1f MiB of the card; %lld of %lld ops by %lld launches of graphs",
		 (long long)g->graphs, (double)g->memory * 0x1p-20, (long long)g->ops_launched, (long long)g->ops,
		 (long long)g->launches);
	graphs_forget(g);
	free(g->now.ops);
	free(g);
}

void graphs_begin(struct graphs *g)
{
	if (g)
		g->on = true;
}

void graphs_end(struct graphs *g)
{
	graphs_flush(g);
	if (g)
		g->on = false;
}

static struct dropout *dropout_of(enum graphs_op op, void *args)
{
#define DROPOUT(name)           \
	case GRAPHS_##name:     \
		return &((struct op_##name *)args)->dropout
	switch (op) {
		DROPOUT(position_forward);
		DROPOUT(position_backward);
		DROPOUT(residual_forward);
		DROPOUT(residual_backward);
		DROPOUT(attention_forward);
		DROPOUT(attention_backward);
		DROPOUT(attention_part_forward);
		DROPOUT(attention_part_backward);
	default:
		return NULL;
	}
#undef DROPOUT
}

/* Makes equal what the op does not read, so that micro-batches without dropout are alike. */
static void clear_unread(enum graphs_op op, void *args)
{
	struct dropout *d = dropout_of(op, args);
	if (d && d->rate == 0) {
		d->seed = d->site = 0;
		d->span.sample = 0;
	}
	if (op == GRAPHS_rope)
		((struct op_rope *)args)->span.sample = 0;
	if (op == GRAPHS_attention_part_forward)
		((struct op_attention_part_forward *)args)->keys.sample = 0;
	if (op == GRAPHS_attention_part_backward)
		((struct op_attention_part_backward *)args)->keys.sample = 0;
	/* Bytes between fields may be anything. Where the compiler cannot clear them, lists that are alike may look different. */
#if defined __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define CLEAR(name)                                                   \
	case GRAPHS_##name:                                           \
		__builtin_clear_padding((struct op_##name *)args);    \
		break;
	switch (op) {
		OPS(CLEAR)
	}
#undef CLEAR
#endif
#endif
}

bool graphs_keep(struct graphs *g, enum graphs_op op, const void *args, size_t bytes)
{
	if (!g || !g->on)
		return false;
	switch (op) {
#define AT_ONCE(name) case GRAPHS_##name:
		OPS_OF_LISTS(AT_ONCE)
#undef AT_ONCE
		graphs_flush(g);
		return false;
	default:
		break;
	}
	check(bytes % 8 == 0);
	if (g->now.bytes + sizeof(struct kept) + bytes > g->now_room) {
		g->now_room = g->now_room * 2 + ROOM;
		g->now.ops = realloc(g->now.ops, g->now_room);
		check(g->now.ops);
	}
	struct kept *k = (void *)(g->now.ops + g->now.bytes);
	*k = (struct kept){.op = op, .bytes = (int)bytes};
	memcpy(k + 1, args, bytes);
	clear_unread(op, k + 1);
	g->now.bytes += sizeof *k + bytes;
	g->now_count++;
	return true;
}

static void carry_out(const struct graphs *g, const struct list *l)
{
	const struct kept *k;
	for (size_t at = 0; at < l->bytes; at += sizeof *k + (size_t)k->bytes) {
		k = (const void *)(l->ops + at);
		g->o.run(g->o.context, k->op, k + 1);
	}
}

static void say_once(struct graphs *g, bool *said, const char *why)
{
	if (!*said)
		log_warn("device.graphs: %s after %lld graphs: what is new from now on is launched op by op", why, (long long)g->graphs);
	*said = true;
}

/* Where the list that is kept is or would be in the table. */
static struct list *find(struct graphs *g)
{
	struct list *now = &g->now, *l;
	now->hash = XXH3_64bits(now->ops, now->bytes);
	for (uint64_t at = now->hash;; at++) {
		l = &g->lists[at % TABLE];
		if (!l->ops || (l->hash == now->hash && l->bytes == now->bytes && memcmp(l->ops, now->ops, now->bytes) == 0))
			return l;
	}
}

static void remember(struct graphs *g, struct list *l)
{
	if (g->count == g->o.most || g->bytes + g->now.bytes > LISTS_BYTES) {
		say_once(g, &g->full, "there is no room for more lists of ops");
		return;
	}
	*l = g->now;
	l->ops = malloc(l->bytes);
	check(l->ops);
	memcpy(l->ops, g->now.ops, l->bytes);
	g->count++;
	g->bytes += l->bytes;
}

static void make(struct graphs *g, struct list *l)
{
	cudaGraph_t graph;
	/* Not global: a transport's own threads may take memory meanwhile. */
	CALL(cudaStreamBeginCapture(g->o.stream, cudaStreamCaptureModeThreadLocal));
	carry_out(g, l);
	CALL(cudaStreamEndCapture(g->o.stream, &graph));
	CALL(cudaGraphInstantiate(&l->graph, graph, 0));
	CALL(cudaGraphDestroy(graph));
	CALL(cudaGraphUpload(l->graph, g->o.stream)); /* what else its first launch would take memory for */
	g->graphs++;
}

bool graphs_due(const struct graphs *g)
{
	return g && !g->on && g->due > 0 && !g->poor;
}

void graphs_make(struct graphs *g)
{
	size_t before, room, all;
	CALL(cudaMemGetInfo(&before, &all));
	room = before;
	for (int i = 0; i < TABLE && g->due > 0; i++) {
		if (g->lists[i].graph || g->lists[i].times < 2)
			continue;
		if (room < MEMORY_LEFT) {
			say_once(g, &g->poor, "the card has less than 256 MiB left");
			break;
		}
		make(g, &g->lists[i]);
		g->due--;
		CALL(cudaMemGetInfo(&room, &all));
	}
	g->memory += room < before ? before - room : 0;
}

void graphs_flush(struct graphs *g)
{
	if (!g || g->now_count == 0)
		return;
	struct list *l = g->now_count >= LEAST ? find(g) : NULL;
	if (l && !l->ops)
		remember(g, l);
	if (l && l->graph) {
		CALL(cudaGraphLaunch(l->graph, g->o.stream));
		g->launches++;
		g->ops_launched += g->now_count;
	} else {
		carry_out(g, &g->now);
		g->due += l && l->ops && ++l->times == 2;
	}
	g->ops += g->now_count;
	g->now_count = 0;
	g->now.bytes = 0;
}

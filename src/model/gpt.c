#include "model/gpt.h"

#include <stdlib.h>

static void *zeroed(size_t count, size_t size)
{
	void *p = calloc(count, size);
	check(p);
	return p;
}

/* What position i of a slot keeps. */
static unsigned kept_at(const struct gpt_options *o, int64_t i)
{
	return o->kept ? o->kept[i] : BLOCK_ALL;
}

const struct block *gpt_block(const struct gpt *g)
{
	for (int i = 0; i < g->chunk_count; i++)
		if (g->chunks[i].layers > 0)
			return &g->chunks[i].blocks[0];
	check(false);
	return NULL;
}

static void build_slot(struct gpt *g, struct gpt_slot *s, const struct gpt_options *o, struct memory *memory)
{
	struct arena *a = &memory->arena[MEMORY_ACTIVATIONS];
	*s = (struct gpt_slot){.wait = -1, .blocks = zeroed((size_t)g->positions, sizeof *s->blocks)};
	if (g->first) {
		s->tokens = arena_1d(a, I32, g->env.tokens);
		s->order = arena_1d(a, I32, g->env.tokens);
	}
	if (g->last)
		s->targets = arena_1d(a, I32, g->env.tokens);
	for (int64_t i = 0; i < g->positions; i++) {
		block_build_saved(&s->blocks[i], gpt_block(g), kept_at(o, i), &g->scratch.again, memory);
		if (i > 0)
			s->blocks[i].x = env_rows(&g->env, memory, MEMORY_ACTIVATIONS, g->env.model->hidden);
	}
}

static void build_waits(struct gpt *g, const struct gpt_options *o, struct memory *memory)
{
	g->waits = zeroed((size_t)(g->wait_count * g->positions) + 1, sizeof *g->waits);
	for (int64_t i = 0; i < g->wait_count * g->positions; i++)
		block_build_again(&g->waits[i], gpt_block(g), kept_at(o, i % g->positions), memory,
				  MEMORY_ACTIVATIONS);
}

/* At any time no more of them than slots are kept for a backward; the others are for what comes early. */
static void build_inputs(struct gpt *g, struct memory *memory)
{
	g->inputs = zeroed((size_t)g->input_count, sizeof *g->inputs);
	for (int i = 0; i < g->input_count; i++)
		g->inputs[i] = env_rows(&g->env, memory, i < g->slot_count ? MEMORY_ACTIVATIONS : MEMORY_COMMUNICATION,
					g->env.model->hidden);
}

static void build_chunks(struct gpt *g, const struct gpt_options *o, struct memory *memory)
{
	int64_t first_layer = 0;
	g->chunks = zeroed((size_t)o->chunks, sizeof *g->chunks);
	for (int i = 0; i < o->stages * o->chunks; i++) {
		int64_t layers = o->layers_of[i];
		check(layers >= 1 || i == 0 || i == o->stages * o->chunks - 1);
		if (i % o->stages == o->stage) {
			struct gpt_chunk *c = &g->chunks[i / o->stages];
			*c = (struct gpt_chunk){
				.first = i == 0, .last = i == o->stages * o->chunks - 1, .first_layer = first_layer,
				.layers = layers, .blocks = zeroed((size_t)layers + 1, sizeof *c->blocks),
			};
			for (int64_t j = 0; j < layers; j++)
				block_build(&c->blocks[j], &g->env, memory, first_layer + j);
			g->layers += layers;
			g->positions = layers > g->positions ? layers : g->positions;
		}
		first_layer += layers;
	}
}

void gpt_build(struct gpt *g, const struct gpt_options *o, struct memory *memory)
{
	check(o->chunks >= 1 && o->slots >= 1 && o->inputs >= o->slots);
	*g = (struct gpt){
		.env = {
			.dev = o->dev, .tensor = o->tensor, .tensor_size = o->tensor_size,
			.tensor_rank = o->tensor_rank, .model = o->model, .params = o->params,
			.context = o->context, .context_size = o->context_size > 1 ? o->context_size : 1,
			.context_rank = o->context_rank, .dtype = o->params->dtype, .batch = o->batch,
			.seed = o->seed, .overlap = o->overlap, .whole = o->whole, .sequence = o->sequence && o->tensor_size > 1,
		},
		.first = o->stage == 0, .last = o->stage == o->stages - 1,
		.chunk_count = o->chunks, .slot_count = o->slots, .input_count = o->inputs,
		.wait_count = o->waits, .watch = o->watch,
	};
	struct env *env = &g->env;
	env->length = o->model->sequence / env->context_size;
	env->tokens = env->batch * env->length;
	check(env->context_size == 1 || o->model->sequence % (2 * env->context_size) == 0);
	env->rows = env->sequence ? env->tokens / env->tensor_size : env->tokens;
	check(!env->sequence || env->tokens % env->tensor_size == 0);
	env_build(env, memory);
	if (g->first)
		embedding_build(&g->embedding, &g->env, memory);
	build_chunks(g, o, memory);
	unsigned kept = BLOCK_ALL;
	for (int64_t i = 0; i < g->positions; i++)
		kept &= kept_at(o, i);
	block_build_scratch(&g->scratch, gpt_block(g), kept, o->waits > 0, memory);
	if (g->last) {
		head_build(&g->head, &g->env, memory, g->first ? g->embedding.token : NULL);
		g->last_x = env_rows(&g->env, memory, MEMORY_SCRATCH, o->model->hidden);
	}
	g->slots = zeroed((size_t)o->slots, sizeof *g->slots);
	build_inputs(g, memory);
	build_waits(g, o, memory);
	for (int i = 0; i < o->slots; i++) {
		build_slot(g, &g->slots[i], o, memory);
		gpt_place(g, i, 0, i, &(struct pass){0});
	}
}

void gpt_finish(struct gpt *g)
{
	for (int i = 0; i < g->slot_count; i++)
		free(g->slots[i].blocks);
	free(g->slots);
	free(g->inputs);
	free(g->waits);
	for (int i = 0; i < g->chunk_count; i++)
		free(g->chunks[i].blocks);
	free(g->chunks);
	*g = (struct gpt){0};
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

struct dev_limits gpt_limits(const struct gpt *g)
{
	const struct block *b = gpt_block(g);
	int64_t width = larger(g->env.model->hidden, larger(b->qkv.out, b->up.out));
	if (g->last)
		width = larger(width, g->head.weight->weight.shape[0]);
	bool library = g->env.dtype != F32 && g->env.context_size == 1 && g->env.model->attention_dropout == 0 &&
		       g->env.model->position != POSITION_ALIBI;
	double pairs = library ? (double)g->env.length * (double)g->env.length : 0;
	return (struct dev_limits){
		.rows = g->env.tokens,
		.width = larger(width, b->out.in),
		.head_size = g->env.model->head_size,
		.tensors = g->env.params->count,
		.scores = (double)(g->env.batch * b->heads) * pairs,
		.group_scores = (double)(b->heads / b->kv_heads) * pairs,
	};
}

struct tensor gpt_input(const struct gpt *g, int input)
{
	check(input >= 0 && input < g->input_count);
	return g->inputs[input];
}

void gpt_place(const struct gpt *g, int slot, int chunk, int input, const struct pass *pass)
{
	check(slot >= 0 && slot < g->slot_count && chunk >= 0 && chunk < g->chunk_count);
	struct gpt_slot *s = &g->slots[slot];
	s->chunk = chunk;
	s->input = input;
	s->blocks[0].x = gpt_input(g, input);
	s->pass = *pass;
}

static void use(const struct gpt *g, const struct param *p)
{
	if (g->watch.use)
		g->watch.use(g->watch.context, p->bucket);
}

static void final(const struct gpt *g, const struct param *p)
{
	if (g->watch.final)
		g->watch.final(g->watch.context, p->bucket);
}

static void use_head(const struct gpt *g)
{
	use(g, g->head.norm.weight);
	use(g, g->head.weight);
}

static void head_final(const struct gpt *g)
{
	final(g, g->head.norm.weight);
	if (g->head.weight->bucket != g->head.norm.weight->bucket && !g->first)
		final(g, g->head.weight);
}

/* The blocks of the chunk: each writes the next one's input, the last one y. Of the model's first and last chunk there may be
 * none: the embedding writes y; the head reads the chunk's input. */
static void blocks_forward(const struct gpt *g, const struct gpt_slot *s, struct tensor y)
{
	const struct gpt_chunk *c = &g->chunks[s->chunk];
	if (c->first) {
		use(g, g->embedding.token);
		embedding_forward(&g->embedding, c->layers > 0 ? s->blocks[0].x : y, s->tokens, &s->pass);
	}
	for (int64_t i = 0; i < c->layers; i++) {
		use(g, c->blocks[i].norm1.weight);
		block_forward(&c->blocks[i], &s->blocks[i], &g->scratch,
			      i + 1 < c->layers ? s->blocks[i + 1].x : y, &s->pass);
	}
}

void gpt_forward(const struct gpt *g, int slot, struct tensor y, struct tensor totals, struct tensor d)
{
	check(slot >= 0 && slot < g->slot_count);
	const struct gpt_slot *s = &g->slots[slot];
	bool last = g->chunks[s->chunk].last;
	struct tensor x = last && g->chunks[s->chunk].layers == 0 ? s->blocks[0].x : g->last_x;
	blocks_forward(g, s, last ? x : y);
	if (!last)
		return;
	use_head(g);
	head_loss(&g->head, x, s->targets, totals, d, &s->pass);
	if (s->pass.last)
		head_final(g);
}

/* Between the parts of its backward a slot has what it does not keep to itself. */
static void begin_wait(struct gpt *g, struct gpt_slot *s)
{
	bool taken;
	s->wait = -1;
	do {
		taken = false;
		s->wait++;
		for (int i = 0; i < g->slot_count; i++)
			taken |= &g->slots[i] != s && g->slots[i].wait == s->wait;
	} while (taken);
	check(s->wait < g->wait_count);
	for (int64_t i = 0; i < g->positions; i++)
		block_saved_lend(&s->blocks[i], &g->waits[s->wait * g->positions + i]);
}

static void end_wait(struct gpt *g, struct gpt_slot *s)
{
	for (int64_t i = 0; i < g->positions; i++)
		block_saved_return(&s->blocks[i], &g->waits[s->wait * g->positions + i], &g->scratch.again);
	s->wait = -1;
}

void gpt_backward(struct gpt *g, int slot, enum backward_parts parts, struct tensor d)
{
	check(slot >= 0 && slot < g->slot_count);
	struct gpt_slot *s = &g->slots[slot];
	const struct gpt_chunk *c = &g->chunks[s->chunk];
	if (parts == BACKWARD_INPUT)
		begin_wait(g, s);
	for (int64_t i = c->layers - 1; i >= 0; i--) {
		block_backward(&c->blocks[i], parts, &s->blocks[i], &g->scratch, d, &s->pass);
		if (s->pass.last && parts & BACKWARD_WEIGHT)
			final(g, c->blocks[i].norm1.weight);
	}
	g->inputs[s->input] = s->blocks[0].x; /* split: another one's memory now */
	if (parts == BACKWARD_WEIGHT)
		end_wait(g, s);
	if (c->first && parts & BACKWARD_INPUT) {
		embedding_backward(&g->embedding, d, s->tokens, s->order, &s->pass);
		if (s->pass.last)
			final(g, g->embedding.token);
	}
}

void gpt_logits(const struct gpt *g, int slot, int64_t row, float *out)
{
	check(g->first && g->last && g->chunk_count == 1);
	blocks_forward(g, &g->slots[slot], g->last_x);
	use_head(g);
	head_logits(&g->head, g->last_x, row, out);
}

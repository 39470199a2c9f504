/* The scheduler: runs a grid block by block, the threads of a block as fibers, and brings them together at barriers
 * and warp operations. */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cudaemu.h"
#include "emu.h"
#include "fiber.h"
#include "memory.h"

enum wait { RUNS, AT_BARRIER, AT_WARP, DONE };

struct async_copy {
	char *to;
	const char *from;
	int bytes;
};

struct thread {
	emu_thread self;
	fiber context;
	enum wait wait;
	emu_place place; /* where it waits */
	unsigned mask;
	int kind;
	const void *in;
	void *out;
	std::vector<async_copy> copies;      /* not waited for, oldest first */
	std::vector<size_t> groups;          /* ends of the committed groups among them */
};

emu_thread *emu_self;
uint3 emu_block;
dim3 emu_block_dim, emu_grid_dim;

static const char *kernel_name = "no kernel";
static thread threads[1024];
static int count, arrived, finished;
static void (*kernel_body)(void *);
static void *kernel_closure;
static bool backwards;

void emu_set_backwards(bool b)
{
	backwards = b;
}

bool emu_backwards()
{
	return backwards;
}

void emu_fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "cudaemu: %s block (%u,%u,%u) thread %d: ", kernel_name, emu_block.x, emu_block.y, emu_block.z,
		emu_self ? emu_self->number : -1);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	fflush(stderr);
	_Exit(EMU_FAULT);
}

static thread *current()
{
	return threads + emu_self->number;
}

static void leave(enum wait why)
{
	thread *t = current();
	t->wait = why;
	fiber_leave(&t->context, why == DONE);
}

static bool same(emu_place a, emu_place b)
{
	return a.line == b.line && a.file == b.file;
}

void emu_barrier(emu_place place)
{
	current()->place = place;
	if (++arrived < count) {
		leave(AT_BARRIER);
		return;
	}
	for (int i = 0; i < count; i++) {
		thread *t = threads + i;
		if (t->wait == AT_BARRIER && !same(t->place, place))
			emu_fail("barrier: it waits at line %d, thread %d at line %d", place.line, i, t->place.line);
	}
	for (int i = 0; i < count; i++)
		threads[i].wait = RUNS;
	arrived = 0;
	memory_block_barrier();
}

void emu_warp(unsigned mask, emu_place place, int kind, const void *in, void *out, void (*apply)(emu_operands *))
{
	thread *self = current(), *first = threads + emu_self->warp * 32;
	int lanes = count - emu_self->warp * 32 < 32 ? count - emu_self->warp * 32 : 32;
	if (!(mask >> emu_self->lane & 1))
		emu_fail("line %d: the mask %08x leaves out lane %d, which calls", place.line, mask, emu_self->lane);
	if (lanes < 32 && mask >> lanes)
		emu_fail("line %d: the mask %08x names lanes that the block does not have", place.line, mask);
	self->place = place;
	self->mask = mask;
	self->kind = kind;
	self->in = in;
	self->out = out;
	for (int i = 0; i < lanes; i++) {
		thread *t = first + i;
		if (!(mask >> i & 1) || t == self)
			continue;
		if (t->wait == DONE)
			emu_fail("line %d: the mask %08x names lane %d, which has ended", place.line, mask, i);
		if (t->wait != AT_WARP) {
			leave(AT_WARP);
			return;
		}
		if (t->mask != mask || t->kind != kind || !same(t->place, place))
			emu_fail("line %d with mask %08x, but lane %d of its warp is at line %d with mask %08x", place.line,
				 mask, i, t->place.line, t->mask);
	}
	emu_operands o = {{}, {}, mask, kind};
	for (int i = 0; i < lanes; i++) {
		o.in[i] = first[i].in;
		o.out[i] = first[i].out;
	}
	apply(&o);
	for (int i = 0; i < lanes; i++) {
		if (mask >> i & 1)
			first[i].wait = RUNS;
	}
}

static void barrier_apply(emu_operands *)
{
	memory_warp_barrier(emu_self->warp);
}

void emu_warp_barrier(unsigned mask, emu_place place)
{
	emu_warp(mask, place, -1, nullptr, nullptr, barrier_apply);
}

void emu_shuffle_apply(emu_operands *o)
{
	for (int i = 0; i < 32; i++) {
		if (!(o->mask >> i & 1))
			continue;
		int argument = static_cast<const emu_word *>(o->in[i])->argument;
		int source = o->kind == EMU_XOR ? i ^ argument : o->kind == EMU_DOWN ? i + argument
			   : o->kind == EMU_UP ? i - argument : argument & 31;
		if ((o->kind == EMU_DOWN || o->kind == EMU_UP) && (source < 0 || source > 31))
			source = i;
		if (source < 0 || source > 31 || !(o->mask >> source & 1))
			emu_fail("shuffle: lane %d reads lane %d, which the mask %08x leaves out", i, source, o->mask);
		*static_cast<uint64_t *>(o->out[i]) = static_cast<const emu_word *>(o->in[source])->bits;
	}
}

void emu_vote_apply(emu_operands *o)
{
	unsigned ballot = 0;
	for (int i = 0; i < 32; i++) {
		if (o->mask >> i & 1)
			ballot |= unsigned(*static_cast<const bool *>(o->in[i])) << i;
	}
	for (int i = 0; i < 32; i++) {
		if (o->mask >> i & 1)
			*static_cast<unsigned *>(o->out[i]) = ballot;
	}
}

void emu_load_matrices_apply(emu_operands *o)
{
	for (int lane = 0; lane < 32; lane++) {
		uint32_t *r = static_cast<uint32_t *>(o->out[lane]);
		for (int m = 0; m < 4; m++) {
			uint16_t pair[2];
			for (int e = 0; e < 2; e++) {
				int row = o->kind ? lane % 4 * 2 + e : lane / 4, column = o->kind ? lane / 4 : lane % 4 * 2 + e;
				pair[e] = static_cast<const uint16_t *>(o->in[8 * m + row])[column];
			}
			r[m] = uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
		}
	}
}

void emu_copy_async(void *shared, const void *global, int bytes)
{
	if (bytes)
		emu_access(global, size_t(bytes), false);
	current()->copies.push_back({static_cast<char *>(shared), static_cast<const char *>(global), bytes});
}

void emu_copy_commit(void)
{
	current()->groups.push_back(current()->copies.size());
}

void emu_copy_wait(int pending)
{
	thread *t = current();
	if (int(t->groups.size()) <= pending)
		return;
	size_t groups = t->groups.size() - size_t(pending), copies = t->groups[groups - 1];
	for (size_t i = 0; i < copies; i++) {
		async_copy c = t->copies[i];
		emu_access(c.to, 16, true);
		memset(c.to, 0, 16);
		memcpy(c.to, c.from, size_t(c.bytes));
	}
	t->copies.erase(t->copies.begin(), t->copies.begin() + ptrdiff_t(copies));
	t->groups.erase(t->groups.begin(), t->groups.begin() + ptrdiff_t(groups));
	for (size_t &g : t->groups)
		g -= copies;
}

static void body()
{
	fiber_arrived();
	kernel_body(kernel_closure);
	if (!current()->copies.empty())
		emu_fail("it ends with asynchronous copies that it never waited for");
	finished++;
	leave(DONE);
}

/* All threads that are left wait, and nothing will wake them: says for what. */
[[noreturn]] static void stuck()
{
	for (int i = 0; i < count; i++) {
		thread *t = threads + i;
		emu_self = &t->self;
		if (t->wait == AT_WARP)
			emu_fail("line %d: a warp operation with mask %08x waits for lanes that do not come", t->place.line,
				 t->mask);
	}
	for (int i = 0; i < count; i++) {
		thread *t = threads + i;
		emu_self = &t->self;
		if (t->wait == AT_BARRIER)
			emu_fail("barrier at line %d: %d of %d threads have ended without it", t->place.line, finished, count);
	}
	abort();
}

static void run_block(size_t shared)
{
	memory_new_block(shared);
	arrived = finished = 0;
	for (int i = 0; i < count; i++) {
		thread *t = threads + i;
		unsigned x = emu_block_dim.x, y = emu_block_dim.y, n = unsigned(i);
		t->self = {{n % x, n / x % y, n / x / y}, i, i / 32, i % 32};
		t->wait = RUNS;
		t->copies.clear();
		t->groups.clear();
		fiber_start(&t->context, body);
	}
	while (finished < count) {
		bool moved = false;
		for (int i = 0; i < count; i++) {
			thread *t = threads + (backwards ? count - 1 - i : i);
			if (t->wait != RUNS)
				continue;
			emu_self = &t->self;
			fiber_enter(&t->context);
			moved = true;
		}
		if (!moved)
			stuck();
	}
	emu_self = nullptr;
}

void emu_run(const char *name, dim3 grid, dim3 block, size_t shared, void (*run)(void *), void *closure,
	     size_t closure_bytes)
{
	size_t size = size_t(block.x) * block.y * block.z, blocks = size_t(grid.x) * grid.y * grid.z;
	kernel_name = name;
	if (size < 1 || size > 1024 || blocks < 1 || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffff)
		emu_fail("a grid of (%u,%u,%u) blocks of (%u,%u,%u) threads cannot be launched", grid.x, grid.y, grid.z, block.x,
			 block.y, block.z);
	count = int(size);
	emu_grid_dim = grid;
	emu_block_dim = block;
	kernel_body = run;
	kernel_closure = closure;
	memory_set_parameters(closure, closure_bytes);
	for (size_t i = 0; i < blocks; i++) {
		size_t b = backwards ? blocks - 1 - i : i;
		emu_block = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
		run_block(shared);
	}
}

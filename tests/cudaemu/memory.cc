#include "memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

#include "cudaemu.h"
#include "emu.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

static const size_t HEAP = size_t(1) << 30;
/* Large blocks, which are workspaces, lie in the second half, which stays open to the host: closing many pages takes time. */
static const size_t CLOSED = HEAP / 2, LARGE = size_t(16) << 20;
enum { GAP = 256 };

static char *heap, *shadow;
static std::map<char *, size_t> taken; /* by address */

static bool guarded, opened;

static void protect(int how)
{
	if (heap && mprotect(heap, CLOSED, how) != 0)
		abort();
}

void memory_guard()
{
	guarded = true;
}

void memory_open()
{
	if (guarded && !opened)
		protect(PROT_READ | PROT_WRITE);
	opened = true;
}

void memory_close()
{
	if (guarded && opened)
		protect(PROT_NONE);
	opened = false;
}

bool memory_is_device(const void *at)
{
	return heap && at >= heap && at < heap + HEAP;
}

static void *reserve(size_t bytes)
{
	void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		abort();
	return p;
}

void *emu_take(size_t bytes)
{
	if (!heap) {
		heap = static_cast<char *>(reserve(HEAP));
		shadow = static_cast<char *>(reserve(HEAP));
	}
	char *at = heap + (bytes >= LARGE ? CLOSED : 0) + GAP, *end = heap + (bytes >= LARGE ? HEAP : CLOSED);
	for (auto &t : taken) { /* the first gap that is wide enough */
		if (t.first < at - GAP || t.first >= end)
			continue;
		if (size_t(t.first - at) >= bytes + GAP && t.first > at)
			break;
		at = t.first + (t.second + 2 * GAP - 1) / GAP * GAP;
	}
	if (at + bytes + GAP > end)
		return nullptr;
	taken[at] = bytes;
	ASAN_UNPOISON_MEMORY_REGION(at, bytes);
	ASAN_POISON_MEMORY_REGION(at + bytes, GAP);
	memset(shadow + (at - heap), 1, bytes);
	memset(at, 0xff, bytes);
	return at;
}

void emu_give_back(void *memory)
{
	if (!memory)
		return;
	char *at = static_cast<char *>(memory);
	auto t = taken.find(at);
	if (t == taken.end()) {
		fprintf(stderr, "cudaemu: %p is given back but was not taken\n", memory);
		_Exit(EMU_FAULT);
	}
	memset(shadow + (at - heap), 0, t->second);
	ASAN_POISON_MEMORY_REGION(at, t->second);
	taken.erase(t);
}

void emu_show(const void *at, size_t bytes, bool shown)
{
	memset(shadow + (static_cast<const char *>(at) - heap), shown, bytes);
	if (shown)
		ASAN_UNPOISON_MEMORY_REGION(at, bytes);
	else
		ASAN_POISON_MEMORY_REGION(at, bytes);
}

/* Shared memory: static arrays from the start, the dynamic one behind them, each behind a gap. It is watched in GRAINs
 * of bytes: no kernel shares out single bytes. */
struct touch {
	uint32_t epoch; /* counts barriers of blocks, over all launches */
	uint32_t warp_epoch;
	uint16_t thread;
};
enum { GRAIN = 2 };

struct grain {
	touch written, read;
	bool inside; /* of an array */
	bool read_by_many;
};

static const size_t SHARED_REGION = SHARED_MOST + 64 * GAP;
alignas(1024) static char shared[SHARED_REGION];
static grain state[SHARED_REGION / GRAIN];
static uint32_t epoch = 1, block_epoch;
static uint32_t warp_epochs[32];
static size_t shared_used, shared_bytes; /* with and without gaps */
static char *dynamic;
static std::map<const void *, char *> statics;

static char *shared_take(size_t bytes)
{
	shared_bytes += bytes;
	if (shared_bytes > SHARED_MOST)
		emu_fail("%zu bytes of shared memory, of which there are %d", shared_bytes, int(SHARED_MOST));
	char *at = shared + shared_used;
	for (size_t i = 0; i < bytes; i += GRAIN)
		state[(shared_used + i) / GRAIN].inside = true;
	ASAN_UNPOISON_MEMORY_REGION(at, bytes);
	memset(at, 0xff, bytes);
	shared_used += (bytes + 2 * GAP - 1) / GAP * GAP;
	return at;
}

void memory_new_block(size_t bytes)
{
	block_epoch = ++epoch;
	memset(warp_epochs, 0, sizeof warp_epochs);
	for (size_t i = 0; i < shared_used / GRAIN; i++)
		state[i].inside = false;
	ASAN_POISON_MEMORY_REGION(shared, sizeof shared);
	shared_used = GAP;
	shared_bytes = 0;
	statics.clear();
	dynamic = bytes ? shared_take(bytes) : nullptr;
}

void *emu_shared_static(const void *key, size_t bytes, size_t align)
{
	(void)align; /* every array starts at a multiple of GAP */
	char *&at = statics[key];
	if (!at)
		at = shared_take(bytes);
	return at;
}

void *emu_shared_dynamic(void)
{
	if (!dynamic)
		emu_fail("dynamic shared memory is used, but the launch gave none");
	return dynamic;
}

void memory_block_barrier()
{
	epoch++;
}

void memory_warp_barrier(int warp)
{
	warp_epochs[warp]++;
}

/* Whether t and an access by the thread that runs are not ordered by any barrier. */
static bool unordered(const touch &t)
{
	if (t.epoch != epoch || t.thread == emu_self->number)
		return false;
	bool same_warp = t.thread / 32 == emu_self->warp;
	return !same_warp || t.warp_epoch == warp_epochs[emu_self->warp];
}

static void access_shared(size_t offset, size_t bytes, bool write)
{
	touch now = {epoch, warp_epochs[emu_self->warp], uint16_t(emu_self->number)};
	for (size_t i = offset / GRAIN; i * GRAIN < offset + bytes; i++) {
		grain &s = state[i];
		if (!s.inside)
			emu_fail("shared memory: %s of %zu bytes outside of an array", write ? "write" : "read", bytes);
		if (unordered(s.written))
			emu_fail("shared memory: %s of what thread %d wrote with no barrier since", write ? "write" : "read",
				 int(s.written.thread));
		if (write) {
			if (s.read.epoch == epoch && (s.read_by_many || unordered(s.read)))
				emu_fail("shared memory: write of what thread %d read with no barrier since",
					 int(s.read.thread));
			s.written = now;
			continue;
		}
		if (s.written.epoch < block_epoch)
			emu_fail("shared memory: read of what no thread has written");
		if (s.read.epoch == epoch && unordered(s.read))
			s.read_by_many = true;
		else if (s.read.epoch != epoch)
			s.read_by_many = false;
		s.read = now;
	}
}

static const char *parameters;
static size_t parameters_bytes;

void memory_set_parameters(const void *at, size_t bytes)
{
	parameters = static_cast<const char *>(at);
	parameters_bytes = bytes;
}

extern "C" char __executable_start, _end;

void memory_access(const void *p, size_t bytes, bool write, bool aligned)
{
	const char *at = static_cast<const char *>(p);
	if (aligned && reinterpret_cast<uintptr_t>(at) % bytes)
		emu_fail("%s of %zu bytes at an address that is not a multiple of it", write ? "write" : "read", bytes);
	if (at >= shared && at < shared + sizeof shared) {
		access_shared(size_t(at - shared), bytes, write);
		return;
	}
	if (memory_is_device(at)) {
		const char *s = shadow + (at - heap);
		size_t next = bytes > 16 ? 1 : bytes > 1 ? bytes - 1 : 1; /* what is outside is wider than one access */
		for (size_t i = 0; i < bytes; i += next) {
			if (!s[i])
				emu_fail("device memory: %s of %zu bytes at %p, of which byte %zu is outside of an allocation",
					 write ? "write" : "read", bytes, p, i);
		}
		return;
	}
	const char *frame = static_cast<const char *>(__builtin_frame_address(0));
	if (at > frame - (128 << 10) && at < frame + (128 << 10))
		return; /* the fiber's own stack: registers and local memory */
	if (!write && at >= parameters && at < parameters + parameters_bytes)
		return;
	if (!write && at >= &__executable_start && at < &_end)
		return; /* constants */
	emu_fail("%s of host memory at %p", write ? "write" : "read", p);
}

bool emu_checks_accesses(void)
{
#ifdef __SANITIZE_ADDRESS__
	return false;
#else
	return true;
#endif
}

void emu_access(const void *at, size_t bytes, bool write)
{
#ifndef __SANITIZE_ADDRESS__
	memory_access(at, bytes, write, true);
#else
	if (__asan_region_is_poisoned(const_cast<void *>(at), bytes))
		emu_fail("%s of %zu bytes at %p, outside of an allocation", write ? "write" : "read", bytes, at);
#endif
}

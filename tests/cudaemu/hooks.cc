/* Answers the calls that -fsanitize=thread puts before each load and store of a kernel. The host compiler only emits
 * the calls; without its own library they are ours. Outside of a kernel they do nothing. */
#include "cudaemu.h"
#include "memory.h"

static inline void seen(const void *at, size_t bytes, bool write, bool aligned)
{
	if (emu_self)
		memory_access(at, bytes, write, aligned);
}

extern "C" {
void __tsan_init(void);
void __tsan_func_entry(void *);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **, void *);
void __tsan_vptr_read(void **);
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);

void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_vptr_read(void **)
{
}
void __tsan_read_range(void *at, unsigned long bytes)
{
	seen(at, bytes, false, false);
}
void __tsan_write_range(void *at, unsigned long bytes)
{
	seen(at, bytes, true, false);
}

#define HOOK(bytes)                                         \
	void __tsan_read##bytes(void *at);                  \
	void __tsan_write##bytes(void *at);                 \
	void __tsan_unaligned_read##bytes(void *at);        \
	void __tsan_unaligned_write##bytes(void *at);       \
	void __tsan_read##bytes(void *at)                   \
	{                                                   \
		seen(at, bytes, false, true);               \
	}                                                   \
	void __tsan_write##bytes(void *at)                  \
	{                                                   \
		seen(at, bytes, true, true);                \
	}                                                   \
	void __tsan_unaligned_read##bytes(void *at)         \
	{                                                   \
		seen(at, bytes, false, false);              \
	}                                                   \
	void __tsan_unaligned_write##bytes(void *at)        \
	{                                                   \
		seen(at, bytes, true, false);               \
	}
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)
}

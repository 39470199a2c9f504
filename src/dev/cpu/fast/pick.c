#include <string.h>

#include "dev/cpu/fast/fast.h"

extern const struct fast_column fast_column_generic;

static bool always(void)
{
	return true;
}

#ifdef __x86_64__
extern const struct fast_column fast_column_avx2, fast_column_avx512;

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/* The best first. */
static const struct {
	const struct fast_column *column;
	bool (*usable)(void);
} columns[] = {
#ifdef __x86_64__
	{&fast_column_avx512, has_avx512},
	{&fast_column_avx2, has_avx2},
#endif
	{&fast_column_generic, always},
};

const struct fast_column *fast_pick(const char *name)
{
	for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
		if ((!name || strcmp(name, columns[i].column->name) == 0) && columns[i].usable())
			return columns[i].column;
	return NULL;
}

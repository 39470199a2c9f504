#include "dev/cpu/fast/fast.h"

extern const struct fast_column fast_column_generic;

#ifdef __x86_64__
extern const struct fast_column fast_column_avx2, fast_column_avx512;

const struct fast_column *fast_pick(void)
{
	__builtin_cpu_init();
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
	bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
	return avx2 && avx512 ? &fast_column_avx512 : avx2 ? &fast_column_avx2 : &fast_column_generic;
}
#else
const struct fast_column *fast_pick(void)
{
	return &fast_column_generic;
}
#endif

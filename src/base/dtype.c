#include "base/dtype.h"

static const struct {
	size_t size;
	const char *name;
} dtypes[DTYPE_COUNT] = {
	[F64] = {8, "fp64"}, [F32] = {4, "fp32"}, [BF16] = {2, "bf16"}, [F16] = {2, "fp16"},
	[I32] = {4, "i32"},  [I64] = {8, "i64"},  [U8] = {1, "u8"},
};

size_t dtype_size(enum dtype t)
{
	return dtypes[t].size;
}

const char *dtype_name(enum dtype t)
{
	return dtypes[t].name;
}

#include "base/tensor.h"

#include "base/error.h"

struct tensor tensor_of(void *data, enum dtype dtype, int dims, const int64_t *shape)
{
	struct tensor t = {data, dtype, dims, {1, 1, 1, 1}};
	check(dims >= 1 && dims <= TENSOR_DIMS);
	for (int i = 0; i < dims; i++) {
		check(shape[i] >= 0);
		t.shape[i] = shape[i];
	}
	return t;
}

struct tensor tensor_1d(void *data, enum dtype dtype, int64_t n)
{
	return tensor_of(data, dtype, 1, &n);
}

struct tensor tensor_2d(void *data, enum dtype dtype, int64_t rows, int64_t columns)
{
	return tensor_of(data, dtype, 2, (int64_t[]){rows, columns});
}

int64_t tensor_count(struct tensor t)
{
	return t.dims ? t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3] : 0;
}

size_t tensor_bytes(struct tensor t)
{
	return (size_t)tensor_count(t) * dtype_size(t.dtype);
}

bool tensor_same_shape(struct tensor a, struct tensor b)
{
	if (a.dims != b.dims)
		return false;
	for (int i = 0; i < a.dims; i++)
		if (a.shape[i] != b.shape[i])
			return false;
	return true;
}

struct tensor tensor_as_rows(struct tensor t, int64_t rows)
{
	int64_t count = tensor_count(t);
	check(rows > 0 && count % rows == 0);
	return tensor_2d(t.data, t.dtype, rows, count / rows);
}

struct tensor tensor_rows(struct tensor t, int64_t begin, int64_t count)
{
	check(t.dims >= 1 && begin >= 0 && count >= 0 && begin + count <= t.shape[0]);
	size_t row = (size_t)(t.shape[1] * t.shape[2] * t.shape[3]) * dtype_size(t.dtype);
	if (t.data) /* NULL while memory is measured */
		t.data = (char *)t.data + (size_t)begin * row;
	t.shape[0] = count;
	return t;
}

/* tensor.h: a tensor is a value: where the elements are, what they are, how many in each dimension.
 *
 * Row-major, dense, up to 4 dimensions. It owns nothing and is passed by value; the data may be on a device. */
#ifndef MTRAIN_BASE_TENSOR_H
#define MTRAIN_BASE_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

enum { TENSOR_DIMS = 4 };

struct tensor {
	void *data;
	enum dtype dtype;
	int dims;                    /* 0: no tensor (an optional one left out) */
	int64_t shape[TENSOR_DIMS]; /* those past dims are 1 */
};

/* A tensor over existing memory, e.g. tensor_of(p, F32, 2, (int64_t[]){N, C}). */
struct tensor tensor_of(void *data, enum dtype dtype, int dims, const int64_t *shape);
struct tensor tensor_1d(void *data, enum dtype dtype, int64_t n);
struct tensor tensor_2d(void *data, enum dtype dtype, int64_t rows, int64_t columns);

static inline bool tensor_given(struct tensor t)
{
	return t.dims != 0;
}

int64_t tensor_count(struct tensor t);             /* elements */
size_t tensor_bytes(struct tensor t);              /* bytes */
bool tensor_same_shape(struct tensor a, struct tensor b);

/* The same elements seen as [rows, count/rows]. Needs: rows divides the count. */
struct tensor tensor_as_rows(struct tensor t, int64_t rows);

/* Rows begin … begin+count of the first dimension; the other dimensions whole. */
struct tensor tensor_rows(struct tensor t, int64_t begin, int64_t count);

#endif

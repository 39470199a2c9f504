#include "dev/op_check.h"

#include <stdio.h>

static void describe(char *text, size_t room, enum dtype dtype, int dims, const int64_t *shape)
{
	int n = snprintf(text, room, "%s [", dtype_name(dtype));
	for (int i = 0; i < dims; i++)
		n += snprintf(text + n, room - (size_t)n, i ? ", %lld" : "%lld", (long long)shape[i]);
	snprintf(text + n, room - (size_t)n, "]");
}

void op_check_tensor(const char *op, const char *name, struct tensor t, enum dtype dtype, int dims, const int64_t *shape)
{
	bool good = t.dtype == dtype && t.dims == dims;
	for (int i = 0; good && i < dims; i++)
		good = t.shape[i] == shape[i];
	if (!good) {
		char is[128], right[128];
		describe(is, sizeof is, t.dtype, t.dims, t.shape);
		describe(right, sizeof right, dtype, dims, shape);
		die(CODE_MACHINE, "%s: %s is %s, should be %s", op, name, t.dims ? is : "left out", right);
	}
	if (tensor_count(t) > 0 && (!t.data || (uintptr_t)t.data % dtype_size(dtype) != 0))
		die(CODE_MACHINE, "%s: %s is at %p, should be aligned to %zu", op, name, t.data, dtype_size(dtype));
}

void op_check_apart(const char *op, const char *name, const char *names, struct tensor t, const struct tensor *others,
		  int count)
{
	uintptr_t begin = (uintptr_t)t.data, end = begin + tensor_bytes(t);
	for (int i = 0; i < count; i++) {
		uintptr_t other = (uintptr_t)others[i].data, other_end = other + tensor_bytes(others[i]);
		if (begin < other_end && other < end)
			die(CODE_MACHINE, "%s: %s shares memory with tensor %d of: %s", op, name, i + 1, names);
	}
}

void op_check_within(const char *op, const char *what, int64_t n, int64_t limit)
{
	if (limit > 0 && n > limit)
		die(CODE_MACHINE, "%s: %lld %s, the device was opened for %lld", op, (long long)n, what, (long long)limit);
}

void op_check_float(const char *op, const char *name, struct tensor t)
{
	if (!tensor_given(t))
		die(CODE_MACHINE, "%s: %s is left out", op, name);
	if (!dtype_is_float(t.dtype))
		die(CODE_MACHINE, "%s: %s is %s, should be a float type", op, name, dtype_name(t.dtype));
}

void op_check_span(const char *op, const struct span *s)
{
	if (s->length < 1 || s->row < 0)
		die(CODE_MACHINE, "%s: a span of length %lld begins at row %lld", op, (long long)s->length, (long long)s->row);
	if (s->piece < 0 || (s->piece > 0 && s->stride < s->piece))
		die(CODE_MACHINE, "%s: a span's pieces of %lld rows are %lld rows apart", op, (long long)s->piece,
		    (long long)s->stride);
	if (s->jump < 0 || (s->jump > 0 && s->length % 2 != 0))
		die(CODE_MACHINE, "%s: a span of length %lld has no halves %lld tokens apart", op, (long long)s->length,
		    (long long)s->jump);
	if (s->sample < 0 || s->first < 0 || s->first + s->length + s->jump > s->sequence)
		die(CODE_MACHINE, "%s: span %lld … %lld of sample %lld is not inside a sequence of %lld", op,
		    (long long)s->first, (long long)(s->first + s->length + s->jump), (long long)s->sample,
		    (long long)s->sequence);
}

void op_check_dropout(const char *op, const struct dropout *d)
{
	if (!(d->rate >= 0 && d->rate <= 1 - 0x1p-32))
		die(CODE_MACHINE, "%s: dropout rate is %g, should be in [0, 1)", op, d->rate);
	if (d->rate > 0 && d->site > 0xffff)
		die(CODE_MACHINE, "%s: dropout site is %u, should be below 65536", op, (unsigned)d->site);
	if (d->rate > 0)
		op_check_span(op, &d->span);
}

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/dropout.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/rows.h"
#include "dev/cpu/parallel.h"

enum { ROWS = 16 }; /* of a part */

struct position_forward {
	const struct op_position_forward *op;
	int64_t samples;
};

INLINE void position_forward(enum dtype t, const struct position_forward *w, int64_t part)
{
	const struct op_position_forward *a = w->op;
	const struct span *span = &a->dropout.span;
	const int64_t width = a->x.shape[1];
	const bool table = tensor_given(a->table);
	struct drop d;
	drop_init(&d, &a->dropout);
	for (int64_t n = part * ROWS; n < least((part + 1) * ROWS, a->x.shape[0]); n++) {
		uint64_t e = drop_row(&d, span, w->samples, n, width);
		const void *x = row_at(t, a->x.data, n * width);
		void *out = row_at(t, a->out.data, n * width);
		const void *place = table ? row_at(t, a->table.data, span_token(span, n) * width) : NULL;
		for (int64_t c = 0; c < width; c += LANES) {
			vf v = get_to(t, x, c, width);
			if (table)
				v += get_to(t, place, c, width);
			put_to(t, out, c, drop_in_row(&d, e, c, width, v), width);
		}
	}
}

static void position_forward_part(void *context, int64_t part, int thread)
{
	const struct position_forward *w = context;
	BY_TYPE(w->op->x.dtype, position_forward, w, part);
}

void FAST(position_forward)(struct device *dev, const struct op_position_forward *a)
{
	if (a->x.dtype == F64) {
		ops_plain.position_forward(dev, a);
		return;
	}
	struct position_forward w = {a, dev->scalars->samples};
	parallel(dev, ceil_div(a->x.shape[0], ROWS), position_forward_part, &w);
}

struct position_backward {
	const struct op_position_backward *op;
	int64_t samples;
	bool placed; /* the span counts: a part is one token's place in all samples, so that a row of the table has one
		      * thread; else it is one row */
};

INLINE void position_backward_row(enum dtype t, const struct position_backward *w, int64_t n, float *sums, struct drop *d)
{
	const struct op_position_backward *a = w->op;
	const int64_t width = a->dx.shape[1];
	uint64_t e = drop_row(d, &a->dropout.span, w->samples, n, width);
	const void *dout = row_at(t, a->dout.data, n * width);
	void *dx = row_at(t, a->dx.data, n * width);
	for (int64_t c = 0; c < width; c += LANES) {
		vf v = drop_in_row(d, e, c, width, get_to(t, dout, c, width));
		put_to(t, dx, c, v, width);
		if (sums)
			put_to(F32, sums, c, get_to(F32, sums, c, width) + v, width);
	}
}

INLINE void position_backward(enum dtype t, const struct position_backward *w, int64_t part)
{
	const struct op_position_backward *a = w->op;
	const struct span *span = &a->dropout.span;
	const int64_t rows = a->dx.shape[0], width = a->dx.shape[1];
	struct drop d;
	drop_init(&d, &a->dropout);
	if (!w->placed) {
		position_backward_row(t, w, part, NULL, &d);
		return;
	}
	int64_t ahead = (part - span->row % span->length + span->length) % span->length;
	for (int64_t k = span->row + ahead; k <= span_row(span, rows - 1); k += span->length) {
		int64_t n = span_find(span, k);
		if (n >= 0)
			position_backward_row(t, w, n, tensor_given(a->dtable) ? (float *)a->dtable.data +
					      span_token(span, n) * width : NULL, &d);
	}
}

static void position_backward_part(void *context, int64_t part, int thread)
{
	const struct position_backward *w = context;
	BY_TYPE(w->op->dx.dtype, position_backward, w, part);
}

void FAST(position_backward)(struct device *dev, const struct op_position_backward *a)
{
	if (a->dx.dtype == F64) {
		ops_plain.position_backward(dev, a);
		return;
	}
	bool placed = tensor_given(a->dtable) || a->dropout.rate > 0;
	struct position_backward w = {a, dev->scalars->samples, placed};
	parallel(dev, placed ? a->dropout.span.length : a->dx.shape[0], position_backward_part, &w);
}

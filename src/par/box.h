/* box.h: which part of a global tensor is here.
 *
 * A box is a pair of corners in a global tensor's coordinates: begin inclusive, end exclusive. Tensor parallelism,
 * vocabulary padding and checkpoints all speak in boxes, so a piece saved on one mesh can be placed on any other. */
#ifndef MTRAIN_PAR_BOX_H
#define MTRAIN_PAR_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tensor.h"

struct box {
	int dims;
	int64_t begin[TENSOR_DIMS], end[TENSOR_DIMS]; /* past dims: 0, 1 */
};

/* The box of a whole tensor of this shape. */
struct box box_whole(int dims, const int64_t *shape);

int64_t box_count(const struct box *b); /* elements; 0 when empty */

/* The common part; false (and *out empty) if there is none. Needs: equal dims. */
bool box_intersect(struct box *out, const struct box *a, const struct box *b);

/* Elements begin … end of the dense array that holds b, as boxes: as few as can be, one behind the other in that array.
 * Returns how many; none of an empty range. */
enum { BOX_RANGE = 2 * TENSOR_DIMS - 1 };
int box_range(struct box out[BOX_RANGE], const struct box *b, int64_t begin, int64_t end);

/* Copies the elements of `part` (inside both boxes) from a dense array that holds `from_box` to one that holds
 * `to_box`. size: bytes of an element. */
void box_copy(void *to, const struct box *to_box, const void *from, const struct box *from_box,
	      const struct box *part, size_t size);

/* Calls f for each run of elements that is contiguous both in the global tensor and in the local dense array of the box, in
 * row-major order: `global` and `local` are element offsets of the run's start, `count` its length.
 * shape: of the global tensor. */
void box_runs(const struct box *b, const int64_t *shape,
	      void (*f)(void *context, int64_t global, int64_t local, int64_t count), void *context);

#endif

#include "dev/cpu/cpu.h"
#include "dev/cpu/fast/fast.h"
#include "dev/cpu/fast/simd.h"

/* Too small to pay: the plain code runs. */
#define OP_PLAIN(name)                                                       \
	void FAST(name)(struct device *dev, const struct op_##name *a)       \
	{                                                                    \
		ops_plain.name(dev, a);                                      \
	}
OP_PLAIN(loss_combine)
OP_PLAIN(loss_total)
OP_PLAIN(step_verdict)
#undef OP_PLAIN

#define OP_ENTRY(name) .name = FAST(name),
static const struct ops table = {OPS(OP_ENTRY)};
#undef OP_ENTRY

static size_t largest(size_t a, size_t b)
{
	return a > b ? a : b;
}

static void room(const struct dev_limits *limits, size_t *shared, size_t *each)
{
	*shared = largest(FAST(gemm_room)(limits), FAST(square_sums_room)(limits));
	*each = largest(FAST(attention_room)(limits), FAST(attention_backward_room)(limits));
}

#define FAST_TEXT_OF(build) #build
#define FAST_TEXT(build) FAST_TEXT_OF(build)
const struct fast_column FAST(column) = {
	.name = FAST_TEXT(FAST_BUILD),
	/* Two multiply-adds a cycle; without FMA one multiplication and one addition. */
	.flops = LANES > 4 ? 2 * 2 * LANES : 2 * LANES,
	.ops = &table,
	.room = room,
};

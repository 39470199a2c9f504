/* The defining column: each call goes to the ops compiled for F64, or to those for F32, BF16 and F16. */
#include "dev/cpu/cpu.h"

#define DECLARE(name)                                                            \
	void plain_float_##name(struct device *dev, const struct op_##name *a);  \
	void plain_double_##name(struct device *dev, const struct op_##name *a);
OPS(DECLARE)

#define PICK(name, wide)                                                         \
	static void plain_##name(struct device *dev, const struct op_##name *a)  \
	{                                                                        \
		if (wide)                                                        \
			plain_double_##name(dev, a);                             \
		else                                                             \
			plain_float_##name(dev, a);                              \
	}

PICK(embedding_forward, a->out.dtype == F64)
PICK(embedding_backward, a->dout.dtype == F64)
PICK(position_forward, a->out.dtype == F64)
PICK(position_backward, a->dout.dtype == F64)
PICK(norm_forward, a->out.dtype == F64)
PICK(residual_forward, a->sum.dtype == F64)
PICK(norm_backward, a->dx.dtype == F64)
PICK(residual_backward, a->dsum.dtype == F64)
PICK(gemm, a->a.dtype == F64)
PICK(gelu_forward, a->out.dtype == F64)
PICK(swiglu_forward, a->out.dtype == F64)
PICK(swiglu_backward, a->dout.dtype == F64)
PICK(rope, a->qkv.dtype == F64)
PICK(unit_rows_forward, a->x.dtype == F64)
PICK(unit_rows_backward, a->x.dtype == F64)
PICK(bias_backward, a->dout.dtype == F64)
PICK(attention_forward, a->qkv.dtype == F64)
PICK(attention_backward, a->qkv.dtype == F64)
PICK(attention_part_forward, a->qkv.dtype == F64)
PICK(attention_part_backward, a->qkv.dtype == F64)
PICK(attention_delta, a->dout.dtype == F64)
PICK(heads_copy, a->to.dtype == F64)
PICK(loss_stats, a->logits.dtype == F64)
PICK(loss_combine, a->losses.dtype == F64)
PICK(loss_backward, a->logits.dtype == F64)
PICK(loss_total, a->losses.dtype == F64)
PICK(add, a->y.dtype == F64)
PICK(convert, a->from.dtype == F64 || a->to.dtype == F64)
PICK(square_sums, a->count > 0 && a->grads[0].dtype == F64)
PICK(step_verdict, false) /* in FP64 either way */
PICK(adamw, a->count > 0 && a->items[0].master.dtype == F64)

#define ENTRY(name) .name = plain_##name,
const struct ops ops_plain = {OPS(ENTRY)};

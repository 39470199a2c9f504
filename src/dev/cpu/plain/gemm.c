#include "dev/cpu/plain/plain.h"

static real gelu(enum gelu_kind kind, real x)
{
	if (kind == GELU_ERF)
		return x / 2 * (1 + MATH(erf)(x * (real)0.70710678118654752440)); /* √½ */
	real inner = (real)0.79788456080286535588 * (x + (real)0.044715 * x * x * x); /* √(2/π) */
	return x / 2 * (1 + MATH(tanh)(inner));
}

static real gelu_slope(enum gelu_kind kind, real x)
{
	if (kind == GELU_ERF) {
		real density = (real)0.39894228040143267794 * MATH(exp)(-x * x / 2); /* 1/√(2π) */
		return (1 + MATH(erf)(x * (real)0.70710678118654752440)) / 2 + x * density;
	}
	real inner = (real)0.79788456080286535588 * (x + (real)0.044715 * x * x * x);
	real slope = (real)0.79788456080286535588 * (1 + 3 * (real)0.044715 * x * x);
	real t = MATH(tanh)(inner);
	return (1 + t) / 2 + x / 2 * (1 - t * t) * slope;
}

void PLAIN(gemm)(struct device *dev, const struct op_gemm *a)
{
	int64_t rows = a->out.shape[0], columns = a->out.shape[1];
	int64_t inner = a->a_transposed ? a->a.shape[0] : a->a.shape[1];

	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < columns; j++) {
			int64_t at = i * columns + j;
			real sum = 0;
			for (int64_t k = 0; k < inner; k++)
				sum += get(a->a, a->a_transposed ? k * rows + i : i * inner + k) *
				       get(a->b, a->b_transposed ? j * inner + k : k * columns + j);
			switch (a->epilogue) {
			case GEMM_PLAIN:
				break;
			case GEMM_BIAS:
				sum += get(a->bias, j);
				break;
			case GEMM_BIAS_GELU:
				put(a->aux, at, tensor_given(a->bias) ? sum + get(a->bias, j) : sum);
				sum = gelu(a->gelu, get(a->aux, at));
				break;
			case GEMM_DGELU:
				sum *= gelu_slope(a->gelu, get(a->aux, at));
				break;
			}
			put(a->out, at, a->accumulate ? get(a->out, at) + sum : sum);
		}
}

void PLAIN(gelu_forward)(struct device *dev, const struct op_gelu_forward *a)
{
	for (int64_t i = 0; i < tensor_count(a->out); i++)
		put(a->out, i, gelu(a->gelu, get(a->x, i)));
}

void PLAIN(bias_backward)(struct device *dev, const struct op_bias_backward *a)
{
	int64_t width = a->dout.shape[1];

	for (int64_t n = 0; n < a->dout.shape[0]; n++)
		for (int64_t c = 0; c < width; c++)
			add_to(a->dbias, c, get(a->dout, n * width + c));
}

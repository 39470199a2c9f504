/* The 16-bit types: every value, and every place where rounding turns from one value to the next. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dtype.h"

struct format {
	int exponent_bits, mantissa_bits;
	float (*widen)(uint16_t h);
	uint16_t (*narrow)(float f);
};
static const struct format fp16 = {5, 10, float_from_fp16, fp16_from_float};
static const struct format bf16 = {8, 7, float_from_bf16, bf16_from_float};

/* What the bits mean, by the definition of the format. */
static double meaning(const struct format *f, uint16_t h)
{
	int mantissa = h & ((1 << f->mantissa_bits) - 1), exponent = (h & 0x7fff) >> f->mantissa_bits;
	int bias = (1 << (f->exponent_bits - 1)) - 1;
	double value;
	if (exponent == (1 << f->exponent_bits) - 1)
		value = mantissa ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		value = ldexp(mantissa, 1 - bias - f->mantissa_bits);
	else
		value = ldexp(mantissa + (1 << f->mantissa_bits), exponent - bias - f->mantissa_bits);
	return h & 0x8000 ? -value : value;
}

static void check_values(void **state)
{
	const struct format *f = *state;
	for (uint32_t h = 0; h < 65536; h++) {
		float wide = f->widen((uint16_t)h);
		double right = meaning(f, (uint16_t)h);
		if (isnan(right)) {
			assert_true(isnan(wide) && signbit(wide) == (int)(h >> 15 ? signbit(wide) : 0));
			assert_true(isnan(f->widen(f->narrow(wide))));
		} else {
			assert_true((double)wide == right && !signbit(wide) == !(h & 0x8000));
			assert_int_equal(f->narrow(wide), h);
		}
	}
}

/* Between neighbours: the middle goes to the even one, the floats beside it to the nearer one. Rounding is monotone, so
 * this says everything about it. The last step, to infinity, is as wide as the one before. */
static void check_rounding(void **state)
{
	const struct format *f = *state;
	uint16_t infinity = (uint16_t)(((1 << f->exponent_bits) - 1) << f->mantissa_bits);
	for (uint16_t h = 0; h < infinity; h++) {
		double low = meaning(f, h), step = h + 1 < infinity ? meaning(f, (uint16_t)(h + 1)) - low : low - meaning(f, (uint16_t)(h - 1));
		float middle = (float)(low + step / 2);
		assert_true((double)middle == low + step / 2);
		assert_int_equal(f->narrow(middle), h % 2 ? h + 1 : h);
		assert_int_equal(f->narrow(-middle), 0x8000 | (h % 2 ? h + 1 : h));
		assert_int_equal(f->narrow(nextafterf(middle, 0)), h);
		assert_int_equal(f->narrow(nextafterf(middle, INFINITY)), h + 1);
	}
	assert_int_equal(f->narrow(INFINITY), infinity);
	assert_int_equal(f->narrow(-INFINITY), 0x8000 | infinity);
	assert_int_equal(f->narrow(0x1.fffffep127f), infinity);
}

static void check_monotone(void **state)
{
	const struct format *f = *state;
	uint16_t last = 0;
	for (uint32_t bits = 0; bits <= 0x7f800000u; bits += 1013) {
		uint16_t h = f->narrow(float_from_bits(bits));
		assert_true(h >= last);
		last = h;
	}
}

static void check_names(void **state)
{
	static const size_t sizes[DTYPE_COUNT] = {8, 4, 2, 2, 4, 8, 1};
	for (int t = 0; t < DTYPE_COUNT; t++) {
		assert_int_equal(dtype_size((enum dtype)t), sizes[t]);
		assert_non_null(dtype_name((enum dtype)t));
		assert_int_equal(dtype_is_float((enum dtype)t), t == F64 || t == F32 || t == F16 || t == BF16);
	}
	assert_int_equal(dtype_sum(F64), F64);
	assert_int_equal(dtype_sum(F32), F32);
	assert_int_equal(dtype_sum(F16), F32);
	assert_int_equal(dtype_sum(BF16), F32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{"fp16 values", check_values, NULL, NULL, (void *)(uintptr_t)&fp16},
		{"fp16 rounding", check_rounding, NULL, NULL, (void *)(uintptr_t)&fp16},
		{"fp16 is monotone", check_monotone, NULL, NULL, (void *)(uintptr_t)&fp16},
		{"bf16 values", check_values, NULL, NULL, (void *)(uintptr_t)&bf16},
		{"bf16 rounding", check_rounding, NULL, NULL, (void *)(uintptr_t)&bf16},
		{"bf16 is monotone", check_monotone, NULL, NULL, (void *)(uintptr_t)&bf16},
		cmocka_unit_test(check_names),
	};
	return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}

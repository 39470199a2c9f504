#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "train/sampler.h"

enum { VOCAB = 6, DRAWS = 20000 };

static const float logits[VOCAB] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -30.0f};

static void draw(const struct sampler *s, int counts[VOCAB])
{
	int32_t room[VOCAB];
	for (int i = 0; i < VOCAB; i++)
		counts[i] = 0;
	for (int n = 0; n < DRAWS; n++) {
		int32_t token = sampler_pick(s, n, logits, VOCAB, room);
		assert_in_range(token, 0, VOCAB - 1);
		counts[token]++;
	}
}

static void test_likeliest(void **state)
{
	(void)state;
	int counts[VOCAB];
	draw(&(struct sampler){.temperature = 0, .top_p = 1}, counts);
	assert_int_equal(counts[1], DRAWS); /* of two equal ones the first */
	draw(&(struct sampler){.temperature = 1, .top_k = 1, .top_p = 1}, counts);
	assert_int_equal(counts[1], DRAWS);
	draw(&(struct sampler){.temperature = 1, .top_p = 1e-9}, counts);
	assert_int_equal(counts[1], DRAWS);
}

/* Draws follow the softmax within five standard deviations. */
static void test_distribution(void **state)
{
	(void)state;
	for (double temperature = 0.5; temperature <= 2; temperature *= 2) {
		int counts[VOCAB];
		double total = 0;
		draw(&(struct sampler){.temperature = temperature, .top_p = 1, .seed = 3}, counts);
		for (int i = 0; i < VOCAB; i++)
			total += exp((double)logits[i] / temperature);
		for (int i = 0; i < VOCAB; i++) {
			double p = exp((double)logits[i] / temperature) / total;
			assert_true(fabs(counts[i] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)) + 1);
		}
	}
}

static void test_cuts(void **state)
{
	(void)state;
	int counts[VOCAB];
	draw(&(struct sampler){.temperature = 1, .top_k = 3, .top_p = 1}, counts);
	assert_true(counts[1] > 0 && counts[3] > 0 && counts[4] > 0);
	assert_int_equal(counts[0] + counts[2] + counts[5], 0);
	/* the two likeliest hold 0.63 of the probability: top_p 0.6 keeps both and no more */
	draw(&(struct sampler){.temperature = 1, .top_p = 0.6}, counts);
	assert_true(counts[1] > 0 && counts[3] > 0);
	assert_int_equal(counts[1] + counts[3], DRAWS);
}

static void test_repeats(void **state)
{
	(void)state;
	int32_t room[VOCAB];
	struct sampler s = {.temperature = 1, .top_p = 1, .seed = 1}, other = {.temperature = 1, .top_p = 1, .seed = 2};
	int differ = 0;
	for (int n = 0; n < 100; n++) {
		int32_t token = sampler_pick(&s, n, logits, VOCAB, room);
		assert_int_equal(token, sampler_pick(&s, n, logits, VOCAB, room));
		differ += token != sampler_pick(&other, n, logits, VOCAB, room);
	}
	assert_true(differ > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_likeliest),
		cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_repeats),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

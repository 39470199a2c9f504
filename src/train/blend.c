#include "train/blend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/divisor.h"
#include "base/text.h"

/* With a period of at most 2^50 and at most 4096 sources no deficit leaves 63 bits. */
#define PERIOD_MOST (INT64_C(1) << 50)
enum { SOURCES_MOST = 4096 };

/* A typed number as digits·10^exponent, digits without trailing zeros. A decimal of up to 15 digits survives the way
 * through double exactly. False: not a number above 0. */
static bool decimal(const char *text, int64_t *digits, long *exponent)
{
	double value;
	char printed[32];
	if (!text_to_number(text, &value) || !(value > 0))
		return false;
	snprintf(printed, sizeof printed, "%.14e", value);
	char *e = strchr(printed, 'e');
	*e = '\0';
	printed[1] = printed[0]; /* d.ddd → ddddd */
	*digits = strtoll(printed + 1, NULL, 10);
	*exponent = strtol(e + 1, NULL, 10) - 14;
	for (; *digits % 10 == 0; *digits /= 10)
		++*exponent;
	return true;
}

/* Whole numbers without a common divisor in the ratio of the typed ones. */
static bool read_weights(struct blend *b, const char *const *weights, struct error *e)
{
	long exponents[SOURCES_MOST], least = 0;
	for (int i = 0; i < b->sources; i++) {
		if (!decimal(weights[i], &b->weight[i], &exponents[i]))
			return error_set(e, CODE_USAGE, "weight %s: must be a number above 0", weights[i]);
		least = i == 0 || exponents[i] < least ? exponents[i] : least;
	}
	int64_t divisor = 0;
	for (int i = 0; i < b->sources; i++) {
		for (; exponents[i] > least; exponents[i]--) {
			b->weight[i] *= 10;
			if (b->weight[i] > PERIOD_MOST)
				return error_set(e, CODE_USAGE,
						 "weight %s: too far from the smallest weight: they must be within "
						 "15 digits of each other",
						 weights[i]);
		}
		divisor = divisor_common(b->weight[i], divisor);
	}
	for (int i = 0; i < b->sources; i++) {
		b->weight[i] /= divisor;
		b->period += b->weight[i];
		if (b->period > PERIOD_MOST)
			return error_set(e, CODE_USAGE,
					 "weight %s: the weights together have more than 15 digits: round them",
					 weights[i]);
	}
	return true;
}

bool blend_init(struct blend *b, const char *const *weights, int sources, struct error *e)
{
	check(sources >= 1);
	*b = (struct blend){.sources = sources};
	if (sources > SOURCES_MOST)
		return error_set(e, CODE_USAGE, "%d sources: at most %d can be blended", sources, SOURCES_MOST);
	b->weight = calloc(3 * (size_t)sources, sizeof *b->weight);
	if (!b->weight)
		die(CODE_MACHINE, "out of memory for a blend of %d sources", sources);
	b->taken = b->weight + sources;
	b->behind = b->taken + sources;
	if (read_weights(b, weights, e))
		return true;
	blend_finish(b);
	return false;
}

void blend_finish(struct blend *b)
{
	free(b->weight);
	*b = (struct blend){0};
}

static int neediest(const struct blend *b)
{
	int source = 0;
	for (int i = 1; i < b->sources; i++)
		if (b->behind[i] + b->weight[i] > b->behind[source] + b->weight[source])
			source = i;
	return source;
}

void blend_seek(struct blend *b, int64_t n)
{
	check(n >= 0);
	int64_t periods = n / b->period;
	if (n < b->sample || periods > b->sample / b->period) {
		b->sample = periods * b->period;
		for (int i = 0; i < b->sources; i++) {
			b->taken[i] = periods * b->weight[i];
			b->behind[i] = 0;
		}
	}
	for (; b->sample < n; b->sample++) {
		int source = neediest(b);
		for (int i = 0; i < b->sources; i++)
			b->behind[i] += b->weight[i];
		b->behind[source] -= b->period;
		b->taken[source]++;
	}
}

int blend_source(struct blend *b, int64_t n)
{
	blend_seek(b, n);
	return neediest(b);
}

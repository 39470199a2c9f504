#include "model/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct scaling {
	enum { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3 } kind;
	double number[4]; /* factor, low, high, length */
};

/* Exactly `count` finite numbers, with commas between. */
static bool read_numbers(const char *text, double *number, int count)
{
	for (int i = 0; i < count; i++) {
		char *end;
		number[i] = strtod(text, &end);
		if (end == text || !isfinite(number[i]) || *end != (i + 1 < count ? ',' : '\0'))
			return false;
		text = end + 1;
	}
	return true;
}

static bool read_scaling(const char *text, struct scaling *s)
{
	*s = (struct scaling){0};
	if (!text || strcmp(text, "none") == 0)
		return true;
	if (strncmp(text, "linear:", 7) == 0) {
		s->kind = SCALING_LINEAR;
		return read_numbers(text + 7, s->number, 1) && s->number[0] >= 1;
	}
	s->kind = SCALING_LLAMA3;
	return strncmp(text, "llama3:", 7) == 0 && read_numbers(text + 7, s->number, 4) && s->number[0] >= 1 &&
	       s->number[1] > 0 && s->number[2] > s->number[1] && s->number[3] >= 1;
}

static int64_t rotated(const struct model_settings *m)
{
	return llround(m->rotary_fraction * (double)m->head_size);
}

bool rope_right(const struct model_settings *m, char reason[ROPE_REASON])
{
	struct scaling s;
	double exact = m->rotary_fraction * (double)m->head_size;
	int64_t R = rotated(m);
	if (!read_scaling(m->rope_scaling, &s)) {
		snprintf(reason, ROPE_REASON, "model.rope_scaling = %.80s: must be none, linear:FACTOR or "
			 "llama3:FACTOR,LOW,HIGH,LENGTH with FACTOR at least 1 and LOW below HIGH, as in llama3:8,1,4,8192",
			 m->rope_scaling);
		return false;
	}
	if (fabs(exact - (double)R) > 1e-6 * exact || R % 2 != 0 || R < 2) {
		snprintf(reason, ROPE_REASON, "model.position = rope turns pairs of elements: model.rotary_fraction = %g of "
			 "model.head_size = %lld are %g, must be an even number", m->rotary_fraction, (long long)m->head_size,
			 exact);
		return false;
	}
	return true;
}

double rope_frequency(const struct model_settings *m, int64_t i)
{
	const double turn = 6.283185307179586477; /* 2π */
	struct scaling s;
	check(read_scaling(m->rope_scaling, &s));
	double theta = pow(m->rope_base, -2 * (double)i / (double)rotated(m));
	double turns = s.number[3] * theta / turn; /* in LENGTH tokens */
	if (s.kind == SCALING_NONE)
		return theta;
	if (s.kind == SCALING_LINEAR || turns < s.number[1])
		return theta / s.number[0];
	if (turns > s.number[2])
		return theta;
	double share = (turns - s.number[1]) / (s.number[2] - s.number[1]);
	return (1 - share) * theta / s.number[0] + share * theta;
}

static void fill(struct tensor table, const struct model_settings *m, struct device *dev)
{
	int64_t half = table.shape[1] / 2;
	void *host = malloc(tensor_bytes(table));
	check(host);
	for (int64_t i = 0; i < half; i++) {
		double theta = rope_frequency(m, i);
		for (int64_t t = 0; t < table.shape[0]; t++) {
			int64_t at = t * 2 * half + i;
			double cosine = cos((double)t * theta), sine = sin((double)t * theta);
			if (table.dtype == F64) {
				((double *)host)[at] = cosine;
				((double *)host)[at + half] = sine;
			} else {
				((float *)host)[at] = (float)cosine;
				((float *)host)[at + half] = (float)sine;
			}
		}
	}
	dev_write(dev, Q_COMPUTE, table, host);
	dev_finish(dev, dev_mark(dev, Q_COMPUTE));
	free(host);
}

struct tensor rope_table(const struct model_settings *m, enum dtype dtype, struct arena *arena, struct device *dev)
{
	struct tensor table = arena_2d(arena, dtype, m->sequence, rotated(m));
	if (dev && dev_computes(dev))
		fill(table, m, dev);
	return table;
}

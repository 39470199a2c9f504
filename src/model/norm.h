/* norm.h: one normalisation layer: its parameters and its two passes over ops. */
#ifndef MTRAIN_MODEL_NORM_H
#define MTRAIN_MODEL_NORM_H

#include "model/env.h"

struct norm {
	const struct env *env;
	struct param *weight;
	struct param *bias; /* NULL: none */
};

/* What backward needs beside the input. */
struct norm_saved {
	struct tensor mean; /* S [rows]; left out for RMSNorm */
	struct tensor rstd; /* S [rows] */
};

void norm_build(struct norm *n, const struct env *env, struct memory *memory, const char *name);
void norm_build_saved(struct norm_saved *s, const struct env *env, struct memory *memory, enum memory_kind kind);

/* out [rows, C] = norm(x [rows, C]). */
void norm_forward(const struct norm *n, const struct norm_saved *s, struct tensor out, struct tensor x);

/* sum = residual + dropout(x + bias), out = norm(sum), in one pass. bias may be left out. */
void norm_residual_forward(const struct norm *n, const struct norm_saved *s, struct tensor out, struct tensor sum,
			   struct tensor residual, struct tensor x, struct tensor bias, struct dropout dropout);

/* dx = dresidual + norm'(dout); parameter gradients are added. dresidual may be left out, or be dx's own memory. */
void norm_backward(const struct norm *n, const struct norm_saved *s, struct tensor dx, struct tensor dout,
		   struct tensor dresidual, struct tensor x);

#endif

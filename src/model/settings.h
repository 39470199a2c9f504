/* settings.h: what a model is. The [model] section of the settings and nothing else. */
#ifndef MTRAIN_MODEL_SETTINGS_H
#define MTRAIN_MODEL_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/ops.h"

enum activation { ACTIVATION_GELU, ACTIVATION_GELU_ERF, ACTIVATION_SWIGLU };

/* How a model tells where a token stands. */
enum position { POSITION_LEARNED, POSITION_ROPE, POSITION_ALIBI };

struct model_settings {
	int64_t layers;    /* L */
	int64_t hidden;    /* C */
	int64_t heads;     /* H */
	int64_t kv_heads;  /* KV; G = H/KV */
	int64_t head_size; /* D */
	int64_t ffn;       /* F */
	int64_t sequence;  /* T */
	int64_t vocab;     /* V, true size */
	enum norm_kind norm;
	double norm_epsilon;
	enum activation activation;
	enum position position;
	double rope_base, rotary_fraction; /* rope.h */
	const char *rope_scaling;          /* NULL: none */
	bool bias;         /* of the output projections, the MLP and the norms */
	bool qkv_bias;
	bool tied;
	bool normalized_head; /* head.h */
	double dropout;
	double attention_dropout;
	double init_std;
};

/* The form of an activation that is a GELU. */
static inline enum gelu_kind model_gelu(const struct model_settings *m)
{
	return m->activation == ACTIVATION_GELU_ERF ? GELU_ERF : GELU_TANH;
}

#endif

/* rope.h: rotary positions: the angles, as a table, and the settings that say what they are.
 *
 * Of each query and key the first R = rotary_fraction·D elements are turned in pairs (i, R/2 + i), the halves' layout of
 * GPT-NeoX and Llama, by the angle t·θ_i at token t, θ_i = rope_base^(−2i/R): Su et al. 2021. Scalings stretch the angles
 * for sequences longer than a model was trained on:
 *
 *   linear:F            θ/F: Chen et al. 2023.
 *   llama3:F,LOW,HIGH,N θ/F where a turn takes more than N/LOW tokens, θ where less than N/HIGH; in between
 *                       (1 − s)·θ/F + s·θ with s = (N·θ/2π − LOW)/(HIGH − LOW): Llama 3.1, Grattafiori et al. 2024.
 *
 * Angles are formed in FP64 on the host, once, so that every backend, rank and layout turns by the same numbers. The
 * table of the whole sequence takes R numbers a token; a rank that has some of its tokens finds them by their place.
 * Used by env.c, block.c and config_check.c. */
#ifndef MTRAIN_MODEL_ROPE_H
#define MTRAIN_MODEL_ROPE_H

#include "base/arena.h"
#include "dev/device.h"
#include "model/settings.h"

/* Whether the settings can be used: R whole and even, the scaling of one of these forms. Fails: *reason says what is wrong
 * and what would be right. */
enum { ROPE_REASON = 256 };
bool rope_right(const struct model_settings *m, char reason[ROPE_REASON]);

/* θ_i, scaled. Needs: the settings are right; 0 ≤ i < R/2. */
double rope_frequency(const struct model_settings *m, int64_t i);

/* The table of op_rope, dtype [sequence, R], from the arena and filled; no values while measuring (dev NULL). Blocks. */
struct tensor rope_table(const struct model_settings *m, enum dtype dtype, struct arena *arena, struct device *dev);

#endif

/* search_sketch.h: a layout judged quickly: memory to the byte, seconds to a few per cent. Inside of the search. */
#ifndef MTRAIN_PLAN_SEARCH_SKETCH_H
#define MTRAIN_PLAN_SEARCH_SKETCH_H

#include "plan/search.h"

/* Writes the layout to the config. */
void search_apply(struct config *c, const struct search_layout *l);

/* Why a layout is out: a stage of its plan that needs more than there is, or what counting it said. */
void search_too_much(struct search_layout *l, const struct plan *p, int stage);
void search_refuse(struct search_layout *l, const struct error *e);

/* Fills memory, sketch and reason. timed: seconds too. */
void search_sketch(struct search_layout *l, const struct plan_options *o, bool timed);

#endif

/* plan_report.h: a plan for people, and for programs.
 *
 * The table says what fills the memory, what fills the time and what would help; the JSON has the contract's fields. */
#ifndef MTRAIN_PLAN_PLAN_REPORT_H
#define MTRAIN_PLAN_PLAN_REPORT_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "plan/plan.h"

void plan_report(const struct plan *p, FILE *out);

/* For cJSON_Delete. */
cJSON *plan_report_json(const struct plan *p);

/* Each number of a hardware file, with its mark and source, likewise. */
cJSON *plan_report_constants(const struct hardware *h);

#endif

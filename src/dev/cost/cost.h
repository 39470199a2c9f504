/* cost.h: the device that computes nothing and counts everything.
 *
 * It fills the same tables as the others, so the real build code and the real step run on it: memory is made-up
 * addresses that nobody may touch, an op is a line in a record (record.h), and a read of device memory gives zeros, of the
 * scalars a fixed answer: no overflow, norm 1. So a plan cannot drift from the run. Any rank of any mesh can be counted in
 * one process, with the counting transport (comm/count.c).
 *
 * Used by the ledger and the planner. It is in no list of backends: nothing trains on it. */
#ifndef MTRAIN_DEV_COST_COST_H
#define MTRAIN_DEV_COST_COST_H

#include "dev/backend.h"
#include "dev/cost/record.h"

extern const struct backend backend_cost;

/* The record of what was queued since the device was opened, or since cost_forget; marks from before still count. */
struct record *cost_record(const struct device *dev);
void cost_forget(struct device *dev);

/* The same, and it is the caller's now, for record_finish. */
struct record cost_take_record(struct device *dev);

/* What dev_workspace says from dev_reserve on: bytes that the ops of a real device would use inside. NULL, as at first: 0. */
typedef size_t cost_workspace(void *context, const struct dev_limits *limits);
void cost_set_workspace(struct device *dev, cost_workspace *workspace, void *context);

#endif

/* range.h: the interval in which a number that a person typed must lie.
 *
 * Written as in mathematics: "[0, 1)" holds 0 and not 1, "(0, inf)" everything above 0. A range is a literal in a
 * table (settings, options of a command); the check, the error message and the help text are all made from it, so
 * they cannot disagree. */
#ifndef MTRAIN_BASE_RANGE_H
#define MTRAIN_BASE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether `value` lies in it. NULL holds everything. Fails (check): a text that is no interval. */
bool range_holds(const char *range, double value);

/* In words: "at least 1", "above 0", "from 0 to 1", "from 0 to below 1"; empty for NULL. Returns buf. */
char *range_say(char *buf, size_t room, const char *range);

#endif

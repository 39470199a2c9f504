/* clock.h: the clock that waits and limits are measured by. */
#ifndef MTRAIN_BASE_CLOCK_H
#define MTRAIN_BASE_CLOCK_H

/* Seconds of a clock that only goes forward, whatever is done to the time of day. Its zero means nothing. */
double clock_now(void);

#endif

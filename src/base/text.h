/* text.h: reading numbers and names that people typed.
 *
 * Everything here takes untrusted text and answers true or false; the caller words the error. */
#ifndef MTRAIN_BASE_TEXT_H
#define MTRAIN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole number with an optional sign and an optional suffix: k M G T (powers of 1000) or Ki Mi Gi Ti (powers of
 * 1024); a fraction is fine where the result is whole ("1.5M"). Fails: anything else, or out of int64. */
bool text_to_count(const char *text, int64_t *out);

/* A finite decimal number. Fails: anything after it, infinity, NaN. */
bool text_to_number(const char *text, double *out);

/* true|false|yes|no|on|off|1|0, any case. */
bool text_to_bool(const char *text, bool *out);

/* The entry of `names` (count of them) nearest to `text` by edits (insert, delete, change, swap of neighbours), or
 * NULL if even the nearest needs more than half of its letters changed. Ties go to the first. */
const char *text_nearest(const char *text, const char *const *names, int count);

/* 1536 → "1.5 KiB". Returns buf. */
char *text_bytes(char *buf, size_t room, uint64_t bytes);

/* 1234567 → "1.23 M", 12 → "12" (powers of 1000). Returns buf. */
char *text_si(char *buf, size_t room, double value);

#endif

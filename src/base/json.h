/* json.h: reading JSON that somebody else wrote.
 *
 * cJSON parses; what it lets through and we do not is refused here: text after the value, a key twice in one object,
 * numbers where a count is wanted that are not whole, negative or above 2^53. Getters answer true or false; the
 * caller, who knows the file and the field, words the error.
 *
 * Used by safetensors headers, manifests and config.json. */
#ifndef MTRAIN_BASE_JSON_H
#define MTRAIN_BASE_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The value in text[bytes], from cJSON; the caller gives it to cJSON_Delete. `path` is for messages.
 * Fails with `code`: not JSON, anything but white space after it, a key twice in one object; NULL. */
cJSON *json_parse(const char *path, const char *text, size_t bytes, int code, struct error *e);

/* A whole number from 0 to 2^53. */
bool json_is_count(const cJSON *value, int64_t *out);

/* Field `key` of an object; false if it is not there or of another kind. The text lives as long as the object. */
bool json_count(const cJSON *object, const char *key, int64_t *out);
bool json_number(const cJSON *object, const char *key, double *out); /* finite */
bool json_text(const cJSON *object, const char *key, const char **out);

/* Field `key` as an array of at most `room` counts. */
bool json_counts(const cJSON *object, const char *key, int64_t *out, int room, int *count);

/* For writing: numbers as new fields of an object, exactly (cJSON alone may round the last digit), and an array of
 * counts as a value of its own. False, NULL: out of memory. */
bool json_add_count(cJSON *object, const char *key, int64_t value);
bool json_add_number(cJSON *object, const char *key, double value);
cJSON *json_new_counts(const int64_t *values, int count);

/* The same for what a command prints, where nothing can be done about missing memory: it ends the program. With parent NULL
 * the object or array is new; an array takes it at its end, whatever the key. */
cJSON *json_put_object(cJSON *parent, const char *key);
cJSON *json_put_array(cJSON *parent, const char *key);
void json_put(cJSON *parent, const char *key, cJSON *value); /* which the parent owns then */
void json_put_count(cJSON *object, const char *key, int64_t value);
void json_put_number(cJSON *object, const char *key, double value);
void json_put_text(cJSON *object, const char *key, const char *value);
void json_put_flag(cJSON *object, const char *key, bool value);

/* Prints it on standard output, in lines for people or in one, and deletes it. */
void json_print(cJSON *value, bool lines);

#endif

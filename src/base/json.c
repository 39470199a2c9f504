#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_key(const void *a, const void *b)
{
	const cJSON *const *x = a, *const *y = b;
	return strcmp((*x)->string, (*y)->string);
}

/* The first key that an object in the tree has twice, or NULL. Sorting keeps a hostile file from costing squares. */
static const char *twice(const cJSON *value, bool *no_memory)
{
	const cJSON *child;
	size_t count = 0, n = 0;
	const char *found = NULL;
	cJSON_ArrayForEach(child, value) {
		count++;
		if (child->child && (found = twice(child, no_memory)))
			return found;
	}
	if (!cJSON_IsObject(value) || count < 2)
		return NULL;
	const cJSON **sorted = malloc(count * sizeof(const cJSON *));
	if (!sorted) {
		*no_memory = true;
		return NULL;
	}
	cJSON_ArrayForEach(child, value)
		sorted[n++] = child;
	qsort(sorted, count, sizeof *sorted, by_key);
	for (size_t i = 1; i < count && !found; i++)
		if (strcmp(sorted[i - 1]->string, sorted[i]->string) == 0)
			found = sorted[i]->string;
	free(sorted);
	return found;
}

cJSON *json_parse(const char *path, const char *text, size_t bytes, int code, struct error *e)
{
	const char *end = NULL;
	cJSON *value = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
	if (!value) {
		size_t at = end ? (size_t)(end - text) : 0;
		error_set(e, code, "%s: not JSON: stopped at byte %zu of %zu", path, at < bytes ? at : bytes, bytes);
		return NULL;
	}
	while (end < text + bytes && strchr(" \t\r\n", *end) && *end)
		end++;
	bool no_memory = false;
	const char *key = twice(value, &no_memory);
	if (end != text + bytes)
		error_set(e, code, "%s: text after the JSON value, at byte %zu", path, (size_t)(end - text));
	else if (no_memory)
		error_set(e, CODE_MACHINE, "%s: out of memory", path);
	else if (key)
		error_set(e, code, "%s: the key \"%.200s\" is there twice", path, key);
	else
		return value;
	cJSON_Delete(value);
	return NULL;
}

bool json_is_count(const cJSON *value, int64_t *out)
{
	if (!cJSON_IsNumber(value))
		return false;
	double d = value->valuedouble;
	if (!(d >= 0 && d <= 0x1p53) || d != floor(d))
		return false;
	*out = (int64_t)d;
	return true;
}

bool json_count(const cJSON *object, const char *key, int64_t *out)
{
	return json_is_count(cJSON_GetObjectItemCaseSensitive(object, key), out);
}

bool json_number(const cJSON *object, const char *key, double *out)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
	if (!cJSON_IsNumber(value) || !isfinite(value->valuedouble))
		return false;
	*out = value->valuedouble;
	return true;
}

bool json_text(const cJSON *object, const char *key, const char **out)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
	if (!cJSON_IsString(value))
		return false;
	*out = value->valuestring;
	return true;
}

bool json_counts(const cJSON *object, const char *key, int64_t *out, int room, int *count)
{
	const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, key), *value;
	if (!cJSON_IsArray(array))
		return false;
	int n = 0;
	cJSON_ArrayForEach(value, array)
		if (n == room || !json_is_count(value, &out[n++]))
			return false;
	*count = n;
	return true;
}

/* cJSON prints 15 digits where these are within an ulp of the value. */
static cJSON *new_count(int64_t value)
{
	char text[24];
	if (value < 1000000000000000)
		return cJSON_CreateNumber((double)value);
	snprintf(text, sizeof text, "%lld", (long long)value);
	return cJSON_CreateRaw(text);
}

bool json_add_count(cJSON *object, const char *key, int64_t value)
{
	return cJSON_AddItemToObject(object, key, new_count(value));
}

bool json_add_number(cJSON *object, const char *key, double value)
{
	char text[40];
	snprintf(text, sizeof text, "%.17g", value);
	return cJSON_AddRawToObject(object, key, text) != NULL;
}

cJSON *json_new_counts(const int64_t *values, int count)
{
	cJSON *array = cJSON_CreateArray();
	for (int i = 0; array && i < count; i++) {
		if (cJSON_AddItemToArray(array, new_count(values[i])))
			continue;
		cJSON_Delete(array);
		array = NULL;
	}
	return array;
}

void json_put(cJSON *parent, const char *key, cJSON *value)
{
	check(value);
	check(cJSON_IsArray(parent) ? cJSON_AddItemToArray(parent, value) : cJSON_AddItemToObject(parent, key, value));
}

cJSON *json_put_object(cJSON *parent, const char *key)
{
	cJSON *o = cJSON_CreateObject();
	check(o);
	if (parent)
		json_put(parent, key, o);
	return o;
}

cJSON *json_put_array(cJSON *parent, const char *key)
{
	cJSON *array = cJSON_CreateArray();
	check(array);
	if (parent)
		json_put(parent, key, array);
	return array;
}

void json_put_count(cJSON *object, const char *key, int64_t value)
{
	check(json_add_count(object, key, value));
}

void json_put_number(cJSON *object, const char *key, double value)
{
	check(json_add_number(object, key, value));
}

void json_put_text(cJSON *object, const char *key, const char *value)
{
	check(cJSON_AddStringToObject(object, key, value));
}

void json_put_flag(cJSON *object, const char *key, bool value)
{
	check(cJSON_AddBoolToObject(object, key, value));
}

void json_print(cJSON *value, bool lines)
{
	char *text = lines ? cJSON_Print(value) : cJSON_PrintUnformatted(value);
	check(text);
	puts(text);
	cJSON_free(text);
	cJSON_Delete(value);
}

/* scratch.h: a folder of its own for a test, and files written byte by byte, without the code under test. */
#ifndef MTRAIN_TESTS_SCRATCH_H
#define MTRAIN_TESTS_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

static char *scratch_paths[1024];
static int scratch_count;

/* cmocka set-up and tear-down: *state is the folder's path. */
static inline int scratch_open(void **state)
{
	char *path = strdup("/tmp/mtrain-test-XXXXXX");
	*state = path;
	return path && mkdtemp(path) ? 0 : -1;
}

static inline int scratch_close(void **state)
{
	struct error e;
	bool good = file_remove_tree(*state, CODE_MACHINE, &e);
	free(*state);
	while (scratch_count > 0)
		free(scratch_paths[--scratch_count]);
	return good ? 0 : -1;
}

/* folder/name; lives until scratch_close. */
static inline const char *scratch_path(const char *folder, const char *name)
{
	char *path = NULL;
	assert_true(scratch_count < 1024);
	assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
	return scratch_paths[scratch_count++] = path;
}

static inline void scratch_write(const char *path, const void *data, size_t bytes)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
}

/* The whole file from malloc. */
static inline unsigned char *scratch_read(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	*bytes = (size_t)ftell(f);
	rewind(f);
	unsigned char *data = malloc(*bytes + 1);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, *bytes, f), *bytes);
	data[*bytes] = '\0';
	fclose(f);
	return data;
}

/* A safetensors file from its header's text and its data. */
static inline void scratch_safetensors(const char *path, const char *header, const void *data, size_t bytes)
{
	size_t length = strlen(header);
	unsigned char *all = calloc(1, 8 + length + bytes);
	assert_non_null(all);
	for (int i = 0; i < 8; i++)
		all[i] = (unsigned char)(length >> 8 * i);
	memcpy(all + 8, header, length);
	memcpy(all + 8 + length, data, bytes);
	scratch_write(path, all, 8 + length + bytes);
	free(all);
}

#endif

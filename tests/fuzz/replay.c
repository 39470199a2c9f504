/* Runs a fuzz target without a fuzzer: over every file of a folder, all its beginnings, and some thousand changed
 * copies, the same ones each time. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BEGINNINGS = 600, CHANGED = 1500 };

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n) /* xorshift64 */
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

/* The target gets a copy of exactly that size, so that a sanitizer sees a read beyond it. */
static void run(const char *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void change(char *data, size_t size)
{
	for (uint64_t times = 1 + random_below(4); times > 0; times--) {
		size_t at = (size_t)random_below(size), from = (size_t)random_below(size);
		size_t n = 1 + (size_t)random_below(16);
		size_t left = size - (at > from ? at : from);
		switch (random_below(4)) {
		case 0:
			data[at] = (char)random_below(256);
			break;
		case 1:
			data[at] = (char)(data[at] ^ (1 << random_below(8)));
			break;
		case 2:
			memmove(data + at, data + from, n < left ? n : left);
			break;
		default:
			data[at] = "\0\n=;[]:#,.-9\xff"[random_below(13)];
		}
	}
}

static void replay(const char *path)
{
	char *data;
	size_t size;
	struct error e;
	if (!file_read(path, &data, &size, CODE_DATA, &e)) {
		fprintf(stderr, "%s\n", e.text);
		exit(1);
	}
	run(data, size);
	size_t stride = size / BEGINNINGS + 1;
	for (size_t n = 0; n < size; n += stride)
		run(data, n);
	char *changed = malloc(size + 1);
	for (int i = 0; changed && size > 0 && i < CHANGED; i++) {
		memcpy(changed, data, size);
		change(changed, size);
		run(changed, size);
	}
	free(changed);
	free(data);
}

int main(int argc, char **argv)
{
	int files = 0;
	for (int i = 1; i < argc; i++) {
		struct dirent **entries;
		int count = scandir(argv[i], &entries, NULL, alphasort);
		for (int k = 0; k < count; k++) {
			char path[PATH_ROOM];
			if (entries[k]->d_name[0] != '.' && file_join(path, argv[i], entries[k]->d_name)) {
				replay(path);
				files++;
			}
			free(entries[k]);
		}
		if (count >= 0)
			free(entries);
	}
	printf("%d files\n", files);
	return files == 0;
}

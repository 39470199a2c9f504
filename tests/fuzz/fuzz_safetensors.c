/* Any bytes as a safetensors file: refused with a cause, or every tensor it lists can be read to its last element. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "train/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct safetensors *s, const struct safetensors_tensor *t)
{
	struct error e = {0};
	unsigned char piece[64];
	int64_t count = safetensors_count(t), room = (int64_t)(sizeof piece / 8);
	if (safetensors_find(s, t->name) != t ||
	    (t->dtype == DTYPE_COUNT) != (safetensors_dtype(t->type) == DTYPE_COUNT))
		abort();
	for (int64_t at = 0; at < count && t->dtype != DTYPE_COUNT; at += room)
		if (!safetensors_read(s, t, at, count - at < room ? count - at : room, piece, &e))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	struct safetensors s;
	struct error e = {0};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || !file_write_all(fd, data, size))
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (safetensors_open(&s, path, &e)) {
		for (int i = 0; i < s.count; i++)
			read_all(&s, &s.tensors[i]);
		safetensors_close(&s);
	} else if (e.code != CODE_CHECKPOINT || strncmp(e.text, path, strlen(path)) != 0) {
		abort();
	}
	close(fd);
	return 0;
}

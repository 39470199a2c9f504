/* Any bytes as a manifest: refused with a cause, or it prints as a manifest that is accepted and prints the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest m, again;
	struct error e = {0};
	if (!manifest_parse(&m, "fuzz", (const char *)data, size, &e)) {
		if (e.code != CODE_CHECKPOINT || strncmp(e.text, "fuzz: ", 6) != 0)
			abort();
		return 0;
	}
	for (int i = 0; i < m.tensor_count; i++)
		if (manifest_find(&m, m.tensors[i].name) != &m.tensors[i])
			abort();
	char *text = manifest_print(&m);
	if (!text || !manifest_parse(&again, "again", text, strlen(text), &e))
		abort();
	char *twice = manifest_print(&again);
	if (!twice || strcmp(text, twice) != 0)
		abort();
	free(twice);
	free(text);
	manifest_finish(&again);
	manifest_finish(&m);
	return 0;
}

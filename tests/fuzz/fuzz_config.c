/* The INI reader and everything behind it: whatever is accepted prints as values that are accepted again and say the
 * same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void comes_back(const struct config *c)
{
	struct config again;
	struct error e = {0};
	char *sets[SETTING_MAX];
	int count;
	struct config_pair *pairs = config_pairs(c, &count);
	for (int i = 0; i < count; i++)
		if (asprintf(&sets[i], "%s=%s", pairs[i].key, pairs[i].value) < 0)
			abort();
	if (!config_parse(&again, "again.ini", "", 0, (const char *const *)sets, count, &e))
		abort();
	int same;
	struct config_pair *back = config_pairs(&again, &same);
	if (same != count)
		abort();
	for (int i = 0; i < count; i++) {
		if (strcmp(back[i].key, pairs[i].key) != 0 || strcmp(back[i].value, pairs[i].value) != 0)
			abort();
		free(sets[i]);
	}
	config_free_pairs(back, same);
	config_finish(&again);
	config_free_pairs(pairs, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config c;
	struct error e = {0};
	if (!config_parse(&c, "fuzz.ini", (const char *)data, size, NULL, 0, &e)) {
		if (e.code != CODE_USAGE || strlen(e.text) == 0)
			abort();
		return 0;
	}
	config_check(&c, &e);
	comes_back(&c);
	config_finish(&c);
	return 0;
}

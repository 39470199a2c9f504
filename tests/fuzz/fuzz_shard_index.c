/* Feeds the reader of Megatron indices with any bytes, for a .bin of a size that the first two bytes say: whatever it
 * accepts must then give answers that keep its promises. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good)
{
	if (!good)
		abort();
}

/* Refusals say why. */
static bool accepted(bool good, const struct error *e)
{
	must(good || (e->code == CODE_DATA && e->text[0]));
	return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shard_index x;
	struct error e = {0};
	if (size < 2)
		return 0;
	int64_t bin_bytes = data[0] | data[1] << 8;
	size -= 2;
	unsigned char *copy = malloc(size + 1); /* its own block, so that a read past the end is seen; unaligned */
	must(copy != NULL);
	memcpy(copy + 1, data + 2, size);
	if (accepted(shard_index_init(&x, "fuzz.idx", copy + 1, size, bin_bytes, &e), &e)) {
		bool sound = accepted(shard_index_scan(&x, &e), &e);
		int64_t steps = x.tokens < 64 ? x.tokens : 64, before, after, last = 0;
		for (int64_t i = 0; i < steps; i++) {
			int64_t begin = x.tokens * i / steps;
			bool good = accepted(shard_index_check(&x, begin, x.tokens - begin, &e), &e);
			must(good || !sound);
			if (accepted(shard_index_around(&x, begin, &before, &after, &e), &e))
				must(before >= 0 && before <= begin && after > begin && after <= x.tokens);
			else
				must(!sound);
			must(!sound || before >= last);
			last = before;
		}
	}
	free(copy);
	return 0;
}

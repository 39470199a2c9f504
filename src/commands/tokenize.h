/* tokenize.h: `mtrain tokenize`: text files → a shard of token ids.
 *
 * One document for each file: its bytes as ids 0 to 255, then 256, end of document. Written as Megatron's pair, ids
 * u16, with PREFIX.json (shard_writer.h). Files are walked in order by one thread, which gives each stretch of a
 * file its place in the shard; others read, convert and write stretches. So memory is a few buffers whatever the
 * corpus is, a single large file uses all cores too, and the result does not depend on how many there are. */
#ifndef MTRAIN_COMMANDS_TOKENIZE_H
#define MTRAIN_COMMANDS_TOKENIZE_H

#include <stdint.h>

#include "commands/inputs.h"

struct tokenize_settings {
	const char *output;  /* PREFIX */
	int jobs;            /* threads that convert; ≥ 1 */
	char *const *inputs; /* files and folders */
	int input_count;
	int64_t longest;     /* tokens of a sequence: a longer document becomes several sequences; 1 … 2³¹−1 */
};

struct tokenize_counts {
	int64_t documents, tokens;
	struct inputs_skipped skipped;
};

/* Does it. Fails, and leaves an existing shard as it was: CODE_DATA: an input is missing or unreadable or changes while
 * it is read, or there is no file; CODE_USAGE: bad output, or it lies inside an input; CODE_MACHINE: cannot write. */
bool tokenize(const struct tokenize_settings *s, struct tokenize_counts *counts, struct error *e);

#endif

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "base/log.h"
#include "commands/options.h"
#include "commands/commands.h"
#include "commands/tokenize.h"

struct words {
	const char *tokenizer, *output;
	int64_t jobs;
};

static const struct option_row rows[] = {
	{"tokenizer", "bytes", OPTION_TEXT, offsetof(struct words, tokenizer), .required = true,
	 .help = "256 byte values and 256, end of document"},
	{"output", "PREFIX", OPTION_TEXT, offsetof(struct words, output), .required = true,
	 .help = "where to; an existing shard is replaced when the new one is complete"},
	{"jobs", "N", OPTION_COUNT, offsetof(struct words, jobs), .range = "[1, 1024]",
	 .help = "threads that convert; all cores if it is not given"},
};

static const struct options options = {
	.usage = "mtrain tokenize --tokenizer bytes --output PREFIX [--jobs N] INPUT...",
	.summary = "Writes PREFIX.bin, PREFIX.idx and PREFIX.json, token ids that training reads as data.train =\n"
		   "PREFIX. Each INPUT is a file, or a folder whose files are taken in byte order of their paths;\n"
		   "each file is one document. Links to files are followed, links to folders inside folders are not.",
	.rows = rows,
	.count = sizeof rows / sizeof *rows,
	.least = 1,
	.most = INT32_MAX,
};

static int cores(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int command_tokenize(int argc, char **argv, struct error *e)
{
	struct words words = {.jobs = cores()};
	struct tokenize_settings s = {.longest = INT64_C(1) << 30};
	struct tokenize_counts n;
	char **inputs;
	bool helped;
	if (!options_read(&options, &words, argc, argv, &inputs, &s.input_count, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	if (strcmp(words.tokenizer, "bytes") != 0) {
		error_set(e, CODE_USAGE, "tokenize: --tokenizer %s: the tokenizer that is known is bytes",
			  words.tokenizer);
		return e->code;
	}
	s.output = words.output;
	s.jobs = (int)words.jobs;
	s.inputs = inputs;
	if (!tokenize(&s, &n, e))
		return e->code;
	log_info("%s: %" PRId64 " documents, %" PRId64 " tokens", s.output, n.documents, n.tokens);
	const struct inputs_skipped *k = &n.skipped;
	if (k->folder_links || k->dead_links || k->special)
		log_warn("passed over %ld links to folders, %ld dead links and %ld sockets, pipes and devices",
			 k->folder_links, k->dead_links, k->special);
	return CODE_DONE;
}

#include "commands/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "commands/commands.h"
#include "commands/options.h"
#include "train/shard.h"

/* A value in a line: texts bare, lists of numbers as [2,3], a yes or no by its name, an object's values one behind the
 * other. */
static void print_value(const cJSON *value)
{
	const cJSON *child;
	if (cJSON_IsString(value)) {
		printf(" %s", value->valuestring);
	} else if (cJSON_IsBool(value)) {
		printf(" %s%s", cJSON_IsTrue(value) ? "" : "not ", value->string);
	} else if (cJSON_IsObject(value)) {
		cJSON_ArrayForEach(child, value)
			print_value(child);
	} else {
		char *text = cJSON_PrintUnformatted(value);
		printf(" %s", text ? text : "?");
		free(text);
	}
}

/* "name value" lines; a list of objects is a line for each, below its name. */
static void print_lines(const char *name, const cJSON *value)
{
	const cJSON *child;
	if (cJSON_IsObject(value)) {
		cJSON_ArrayForEach(child, value) {
			char *full = NULL;
			if (asprintf(&full, "%s%s%s", name, *name ? "." : "", child->string) > 0)
				print_lines(full, child);
			free(full);
		}
	} else if (cJSON_IsObject(cJSON_GetArrayItem(value, 0))) {
		printf("%s\n", name);
		cJSON_ArrayForEach(child, value) {
			printf(" ");
			print_value(child);
			printf("\n");
		}
	} else {
		printf("%s", name);
		print_value(value);
		printf("\n");
	}
}

static bool inside(const char *path, const char *name)
{
	char full[PATH_ROOM];
	return file_join(full, path, name) && file_exists(full);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whatever is no folder may be a file of ids; a folder's name may also be the PREFIX of a pair beside it. */
static bool may_be_shard(const char *path)
{
	struct stat st;
	struct error e;
	char found[PATH_ROOM];
	return stat(path, &st) != 0 || !S_ISDIR(st.st_mode) || shard_find(path, SHARD_MEGATRON, found, &e);
}

/* Who looks at the path; NULL: nobody knows it. */
static bool (*reader_of(const char *path))(cJSON *out, const char *path, struct error *e)
{
	if (inside(path, "manifest.json"))
		return inspect_checkpoint;
	if (inside(path, "checkpoints") || inside(path, "metrics.jsonl"))
		return inspect_run;
	if (ends_with(path, ".safetensors"))
		return inspect_safetensors;
	return may_be_shard(path) ? inspect_shard : NULL;
}

static bool inspect(const char *path, bool json, struct error *e)
{
	bool (*reader)(cJSON *out, const char *path, struct error *e) = reader_of(path);
	if (!reader)
		return error_set(e, CODE_DATA, "%s: a folder, but not of a checkpoint or a run", path);
	cJSON *out = json_put_object(NULL, NULL);
	bool good = reader(out, path, e);
	if (json) {
		json_print(out, false);
		return good;
	}
	print_lines("", out);
	cJSON_Delete(out);
	return good;
}

struct values {
	bool json;
};

static const struct option_row rows[] = {
	{"json", NULL, OPTION_FLAG, offsetof(struct values, json), false, NULL, "one JSON object in place of lines"},
};

static const struct options options = {
	.usage = "mtrain inspect PATH [--json]",
	.summary = "Says what PATH is and whether it is good: a checkpoint (with its checksums), a run's folder, a\n"
		   "safetensors file, or a shard of token ids (every id is looked at).",
	.rows = rows,
	.count = sizeof rows / sizeof rows[0],
	.least = 1,
	.most = 1,
};

int command_inspect(int argc, char **argv, struct error *e)
{
	struct values v = {0};
	char **operands;
	int count;
	bool helped;
	if (!options_read(&options, &v, argc, argv, &operands, &count, &helped, e))
		return e->code;
	return helped || inspect(operands[0], v.json, e) ? CODE_DONE : e->code;
}

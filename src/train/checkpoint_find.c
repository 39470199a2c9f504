#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/checkpoint.h"

void checkpoint_found_finish(struct checkpoint_found *found)
{
	manifest_finish(&found->manifest);
	found->path[0] = '\0';
}

/* Rank 0 has read the manifest's text; all get it and parse it. */
static bool share_manifest(struct checkpoint_found *found, struct comm *world, char *text, size_t bytes,
			   struct error *e)
{
	int64_t size = (int64_t)bytes;
	comm_host_broadcast(world, &size, sizeof size, 0);
	bool first = comm_rank(world) == 0;
	if (!first && !(text = malloc((size_t)size + 1)))
		error_set(e, CODE_MACHINE, "%s: out of memory for a manifest of %lld bytes", found->path,
			  (long long)size);
	if (!comm_agree(world, e)) {
		free(text);
		return false;
	}
	comm_host_broadcast(world, text, (size_t)size, 0);
	if (!first)
		manifest_parse(&found->manifest, found->path, text, (size_t)size, e);
	free(text);
	return comm_agree(world, e);
}

/* Whether the folder at found->path, known to rank 0, is a valid checkpoint. The files are spread over the ranks for
 * hashing. */
static bool take(struct checkpoint_found *found, struct comm *world, void *buffer, struct error *e)
{
	char *text = NULL;
	size_t bytes = 0;
	*e = (struct error){0};
	manifest_init(&found->manifest);
	comm_host_broadcast(world, found->path, PATH_ROOM, 0);
	if (comm_rank(world) == 0)
		checkpoint_read(found->path, &found->manifest, &text, &bytes, e);
	if (!comm_agree(world, e) || !share_manifest(found, world, text, bytes, e))
		return false;
	const struct manifest *m = &found->manifest;
	for (int i = comm_rank(world); i < m->file_count && e->code == 0; i += comm_size(world))
		checkpoint_verify(found->path, &m->files[i], buffer, e);
	return comm_agree(world, e);
}

/* Rank 0's list of steps goes to all; the others allocate it. */
static bool share_steps(struct comm *world, const char *dir, int64_t **steps, int *count, struct error *e)
{
	bool first = comm_rank(world) == 0;
	*steps = NULL;
	*count = 0;
	if (first)
		checkpoint_list(dir, steps, count, e);
	if (!comm_agree(world, e))
		return false;
	comm_host_broadcast(world, count, sizeof *count, 0);
	if (!first && *count > 0 && !(*steps = malloc((size_t)*count * sizeof **steps)))
		error_set(e, CODE_MACHINE, "%s: out of memory", dir);
	if (!comm_agree(world, e)) {
		free(*steps);
		return false;
	}
	if (*count > 0)
		comm_host_broadcast(world, *steps, (size_t)*count * sizeof **steps, 0);
	return true;
}

static bool find_newest(struct checkpoint_found *found, const char *dir, struct comm *world, void *buffer,
			struct error *e)
{
	int64_t *steps;
	int count;
	if (!share_steps(world, dir, &steps, &count, e))
		return false;
	struct error newest = {0};
	bool good = count == 0;
	for (int i = 0; i < count && !good; i++) {
		char name[STEP_NAME_ROOM];
		checkpoint_step_name(name, steps[i]);
		if (!file_join(found->path, dir, name))
			snprintf(found->path, PATH_ROOM, "%s", name); /* will not be there */
		good = take(found, world, buffer, e);
		if (good)
			break;
		checkpoint_found_finish(found);
		if (e->code == CODE_MACHINE)
			break;
		if (i == 0)
			newest = *e;
		if (comm_rank(world) == 0 && i + 1 < count)
			log_warn("the checkpoint %s does not count: %s; trying the one before it", name, e->text);
	}
	free(steps);
	if (!good && e->code != CODE_MACHINE)
		error_set(e, CODE_CHECKPOINT,
			  "none of the %d checkpoints in %.200s is valid, the newest because of %.500s; "
			  "to start anew: checkpoint.load = none",
			  count, dir, newest.text);
	return good;
}

/* Runs one of the two searches with the buffer they need. */
static bool search(struct checkpoint_found *found, const char *path, bool run_only, struct comm *world, struct error *e)
{
	char inside[PATH_ROOM];
	int32_t whole = 0;
	struct error local = {0};
	void *buffer = malloc(CHECKPOINT_CHUNK);
	*found = (struct checkpoint_found){0};
	if (!buffer)
		error_set(&local, CODE_MACHINE, "out of memory for the buffer of checkpoints");
	bool good = comm_agree(world, &local);
	if (good && !run_only) {
		/* What rank 0 sees decides for all. */
		whole = comm_rank(world) != 0 || !file_join(inside, path, "checkpoints") || !file_exists(inside);
		comm_host_broadcast(world, &whole, sizeof whole, 0);
	}
	if (good && whole) {
		snprintf(found->path, PATH_ROOM, "%s", path);
		good = take(found, world, buffer, &local);
	} else if (good) {
		if (!run_only && !file_join(inside, path, "checkpoints"))
			inside[0] = '\0';
		good = find_newest(found, run_only ? path : inside, world, buffer, &local);
		if (good && !run_only && !found->path[0])
			good = error_set(&local, CODE_CHECKPOINT, "%s: no valid checkpoint in it", path);
	}
	free(buffer);
	if (!good) {
		checkpoint_found_finish(found);
		*e = local;
	}
	return good;
}

bool checkpoint_find(struct checkpoint_found *found, const char *dir, struct comm *world, struct error *e)
{
	return search(found, dir, true, world, e);
}

bool checkpoint_find_at(struct checkpoint_found *found, const char *path, struct comm *world, struct error *e)
{
	return search(found, path, false, world, e);
}

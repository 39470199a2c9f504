#include "train/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/text.h"

static const char temp_prefix[] = ".tmp-step-";
static const char step_prefix[] = "step-";

void checkpoint_step_name(char out[STEP_NAME_ROOM], int64_t step)
{
	snprintf(out, STEP_NAME_ROOM, "%s%08" PRId64, step_prefix, step);
}

void checkpoint_file_name(char out[STEP_NAME_ROOM], int rank)
{
	snprintf(out, STEP_NAME_ROOM, "rank-%05d.safetensors", rank);
}

/* The step that a folder's name says; false: not the name of a checkpoint. */
static bool step_of_name(const char *name, int64_t *step)
{
	char again[STEP_NAME_ROOM];
	if (strncmp(name, step_prefix, sizeof step_prefix - 1) != 0 || strlen(name) >= sizeof again)
		return false;
	*step = strtoll(name + sizeof step_prefix - 1, NULL, 10);
	checkpoint_step_name(again, *step);
	return *step >= 0 && strcmp(name, again) == 0;
}

static int newest_first(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;
	return *x > *y ? -1 : *x < *y;
}

bool checkpoint_list(const char *dir, int64_t **steps, int *count, struct error *e)
{
	int room = 0;
	int64_t step;
	struct dirent *entry;
	*steps = NULL;
	*count = 0;
	DIR *d = opendir(dir);
	if (!d)
		return errno == ENOENT || error_set(e, CODE_CHECKPOINT, "%s: %s", dir, strerror(errno));
	while ((entry = readdir(d))) {
		if (!step_of_name(entry->d_name, &step))
			continue;
		if (*count == room) {
			room = room ? 2 * room : 64;
			int64_t *more = realloc(*steps, (size_t)room * sizeof *more);
			if (!more) {
				closedir(d);
				free(*steps);
				*steps = NULL;
				return error_set(e, CODE_MACHINE, "%s: out of memory", dir);
			}
			*steps = more;
		}
		(*steps)[(*count)++] = step;
	}
	closedir(d);
	if (*count > 0)
		qsort(*steps, (size_t)*count, sizeof **steps, newest_first);
	return true;
}

static bool step_path(char out[PATH_ROOM], const char *dir, const char *prefix, int64_t step, struct error *e)
{
	char name[STEP_NAME_ROOM], hidden[STEP_NAME_ROOM + 16];
	checkpoint_step_name(name, step);
	snprintf(hidden, sizeof hidden, "%s%s", prefix, name);
	return file_join(out, dir, hidden) || error_set(e, CODE_MACHINE, "%s: path too long", dir);
}

bool checkpoint_begin(const char *dir, int64_t step, int64_t bytes, char temp[PATH_ROOM], struct error *e)
{
	struct statvfs fs;
	temp[0] = '\0';
	if (!file_make_folder(dir, CODE_MACHINE, e))
		return false;
	if (statvfs(dir, &fs) != 0)
		return error_set(e, CODE_MACHINE, "%s: %s", dir, strerror(errno));
	uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (room < (uint64_t)bytes) {
		char need[32], have[32];
		return error_set(e, CODE_MACHINE, "%s: no room for a checkpoint: it takes %s, %s are free", dir,
				 text_bytes(need, sizeof need, (uint64_t)bytes), text_bytes(have, sizeof have, room));
	}
	if (!step_path(temp, dir, ".tmp-", step, e) || !file_remove_tree(temp, CODE_MACHINE, e))
		return false;
	return file_make_folder(temp, CODE_MACHINE, e);
}

static bool write_synced(const char *folder, const char *name, const char *text, struct error *e)
{
	char path[PATH_ROOM];
	if (!file_join(path, folder, name))
		return error_set(e, CODE_MACHINE, "%s: path too long", folder);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	bool good = fd >= 0 && file_write_all(fd, text, strlen(text)) && fsync(fd) == 0;
	if (!good)
		error_set(e, CODE_MACHINE, "%s: %s", path, strerror(errno));
	if (fd >= 0 && close(fd) != 0 && good)
		good = error_set(e, CODE_MACHINE, "%s: %s", path, strerror(errno));
	return good;
}

static bool write_manifest(const char *temp, const struct manifest *m, struct error *e)
{
	char *text = manifest_print(m), hash[HASH_ROOM + 1];
	if (!text)
		return error_set(e, CODE_MACHINE, "%s/manifest.json: out of memory", temp);
	manifest_print_hash(hash, XXH3_64bits(text, strlen(text)));
	strcat(hash, "\n");
	bool good = write_synced(temp, "manifest.json", text, e) && write_synced(temp, "manifest.xxh3", hash, e);
	free(text);
	return good;
}

bool checkpoint_commit(const char *dir, int64_t step, const char *temp, const struct manifest *m, struct error *e)
{
	char path[PATH_ROOM], aside[PATH_ROOM];
	if (!step_path(path, dir, "", step, e) || !step_path(aside, dir, ".tmp-step-old-", step, e) ||
	    !write_manifest(temp, m, e))
		return false;
	if (!file_sync_folder(temp))
		return error_set(e, CODE_MACHINE, "%s: %s", temp, strerror(errno));
	/* Where there is one already, the two change places at once; a file system that cannot do that has the old one
	 * hidden for a moment. */
	bool old = file_exists(path);
	if (old && renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
		checkpoint_abandon(temp);
	} else {
		if (old && !file_remove_tree(aside, CODE_MACHINE, e))
			return false;
		if (old && rename(path, aside) != 0)
			return error_set(e, CODE_MACHINE, "%s: cannot be moved aside: %s", path, strerror(errno));
		if (rename(temp, path) != 0) {
			int reason = errno;
			if (old && rename(aside, path) != 0)
				log_warn("%s: the checkpoint that was here is now in %s", path, aside);
			return error_set(e, CODE_MACHINE, "%s: %s", path, strerror(reason));
		}
		if (old)
			checkpoint_abandon(aside);
	}
	if (!file_sync_folder(dir))
		return error_set(e, CODE_MACHINE, "%s: %s", dir, strerror(errno));
	return true;
}

void checkpoint_abandon(const char *temp)
{
	struct error e;
	if (temp[0] && !file_remove_tree(temp, CODE_MACHINE, &e))
		log_warn("what is left of a checkpoint cannot be removed: %s", e.text);
}

void checkpoint_clean(const char *dir)
{
	char path[PATH_ROOM];
	struct dirent *entry;
	DIR *d = opendir(dir);
	if (!d)
		return;
	while ((entry = readdir(d)))
		if (strncmp(entry->d_name, temp_prefix, sizeof temp_prefix - 1) == 0 &&
		    file_join(path, dir, entry->d_name))
			checkpoint_abandon(path);
	closedir(d);
}

static void remove_step(const char *dir, int64_t step)
{
	char path[PATH_ROOM], hidden[PATH_ROOM];
	struct error e;
	if (!step_path(path, dir, "", step, &e) || !step_path(hidden, dir, ".tmp-step-old-", step, &e)) {
		log_warn("an old checkpoint cannot be removed: %s", e.text);
		return;
	}
	if (rename(path, hidden) != 0)
		log_warn("%s: an old checkpoint cannot be removed: %s", path, strerror(errno));
	else
		checkpoint_abandon(hidden);
}

void checkpoint_prune(const char *dir, int64_t newest, int64_t keep_last, int64_t keep_every)
{
	struct error e;
	int64_t *steps;
	int count;
	if (keep_last <= 0)
		return;
	if (!checkpoint_list(dir, &steps, &count, &e)) {
		log_warn("old checkpoints are not removed: %s", e.text);
		return;
	}
	int64_t seen = 0;
	for (int i = 0; i < count; i++) {
		if (steps[i] > newest)
			continue;
		bool keep = seen++ < keep_last || steps[i] == newest || (keep_every > 0 && steps[i] % keep_every == 0);
		if (!keep)
			remove_step(dir, steps[i]);
	}
	free(steps);
}

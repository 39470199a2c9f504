#include "commands/inputs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

struct walk {
	inputs_visit *visit;
	void *context;
	struct inputs_skipped *skipped;
	struct error *e;
	char path[PATH_ROOM]; /* where the walk is: one for all levels, so that depth costs little stack */
};

struct names {
	char **of; /* folders with a '/' behind: then byte order of names is byte order of whole paths */
	size_t count, room;
};

static bool failed(const struct walk *w)
{
	return error_set(w->e, CODE_DATA, "%s: %s", w->path, strerror(errno));
}

/* Steps into a name of the folder where the walk is; w->path[length] = '\0' steps back. */
static bool step_into(struct walk *w, size_t length, const char *name)
{
	const char *between = length > 0 && w->path[length - 1] == '/' ? "" : "/";
	if ((size_t)snprintf(w->path + length, PATH_ROOM - length, "%s%s", between, name) < PATH_ROOM - length)
		return true;
	w->path[length] = '\0';
	return error_set(w->e, CODE_DATA, "%s/%s: too long for a path", w->path, name);
}

static void add_name(struct names *n, const char *name, bool folder)
{
	if (n->count == n->room) {
		n->room = n->room ? 2 * n->room : 64;
		n->of = realloc(n->of, n->room * sizeof *n->of);
	}
	size_t length = strlen(name);
	char *copy = n->of ? malloc(length + 2) : NULL;
	if (!copy)
		die(CODE_MACHINE, "out of memory for the names in a folder");
	memcpy(copy, name, length + 1);
	if (folder)
		memcpy(copy + length, "/", 2);
	n->of[n->count++] = copy;
}

/* Lists the name where the walk is if it is a file, a link to one, or a folder. */
static bool sort_in(const struct walk *w, struct names *n, const char *name)
{
	struct stat st;
	if (lstat(w->path, &st) != 0)
		return failed(w);
	bool link = S_ISLNK(st.st_mode);
	if (link && stat(w->path, &st) != 0) {
		if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
			return failed(w);
		w->skipped->dead_links++;
	} else if (S_ISREG(st.st_mode)) {
		add_name(n, name, false);
	} else if (!S_ISDIR(st.st_mode)) {
		w->skipped->special++;
	} else if (link) {
		w->skipped->folder_links++;
	} else {
		add_name(n, name, true);
	}
	return true;
}

static bool list_folder(struct walk *w, struct names *n)
{
	size_t length = strlen(w->path);
	DIR *d = opendir(w->path);
	if (!d)
		return failed(w);
	bool good = true;
	const struct dirent *entry;
	while (good && (errno = 0, entry = readdir(d)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		good = step_into(w, length, entry->d_name) && sort_in(w, n, entry->d_name);
		w->path[length] = '\0';
	}
	if (good && errno != 0)
		good = failed(w);
	closedir(d);
	return good;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Everything below the folder where the walk is. */
static bool walk_folder(struct walk *w)
{
	struct names n = {0};
	struct stat st;
	size_t length = strlen(w->path);
	bool good = list_folder(w, &n);
	if (good && n.count > 1)
		qsort(n.of, n.count, sizeof *n.of, by_bytes);
	for (size_t i = 0; i < n.count && good; i++) {
		char *end = n.of[i] + strlen(n.of[i]) - 1;
		bool folder = *end == '/';
		if (folder)
			*end = '\0';
		good = step_into(w, length, n.of[i]);
		if (good && folder)
			good = walk_folder(w);
		else if (good)
			good = stat(w->path, &st) == 0 ? w->visit(w->context, w->path, &st, w->e) : failed(w);
		w->path[length] = '\0';
	}
	for (size_t i = 0; i < n.count; i++)
		free(n.of[i]);
	free(n.of);
	return good;
}

bool inputs_walk(const char *path, inputs_visit *visit, void *context, struct inputs_skipped *skipped, struct error *e)
{
	struct walk w = {visit, context, skipped, e, ""};
	struct stat st;
	if ((size_t)snprintf(w.path, sizeof w.path, "%s", path) >= sizeof w.path)
		return error_set(e, CODE_DATA, "%s: too long for a path", path);
	if (stat(path, &st) != 0)
		return failed(&w);
	if (S_ISDIR(st.st_mode))
		return walk_folder(&w);
	if (!S_ISREG(st.st_mode))
		return error_set(e, CODE_DATA, "%s: neither a file nor a folder", path);
	return visit(context, path, &st, e);
}

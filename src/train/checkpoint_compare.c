#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint_records.h"

bool record_is_weight(const char *name)
{
	return strncmp(name, "weight/", 7) == 0;
}

/* A list of names that ends in "and n more" where they do not fit. */
struct names {
	char text[280];
	size_t used;
	int64_t count, shown;
};

static void names_add(struct names *n, const char *name)
{
	n->count++;
	if (n->shown + 1 < n->count) /* an earlier one did not fit */
		return;
	int added = snprintf(n->text + n->used, sizeof n->text - n->used, "%s%s", n->used ? ", " : "", name);
	if (added < (int)(sizeof n->text - n->used)) {
		n->used += (size_t)added;
		n->shown++;
	}
	n->text[n->used] = '\0';
}

static void names_print(const struct names *n, const char *what, char *out, size_t room)
{
	size_t used = strlen(out);
	if (n->count == 0)
		return;
	used += (size_t)snprintf(out + used, room - used, "; %s: %s", what, n->text);
	if (n->shown < n->count && used < room)
		snprintf(out + used, room - used, "%s%lld more", n->shown ? " and " : "",
			 (long long)(n->count - n->shown));
}

static void shape_text(char *out, size_t room, int dims, const int64_t *shape)
{
	size_t used = 0;
	out[0] = '\0';
	for (int i = 0; i < dims && used < room; i++)
		used += (size_t)snprintf(out + used, room - used, "%s%lld", i ? "x" : "", (long long)shape[i]);
}

bool records_compare(const struct checkpoint_found *found, const struct record *records, int64_t count,
		     bool weights_only, struct error *e)
{
	const struct manifest *m = &found->manifest;
	struct names missing = {0}, other = {0}, unused = {0};
	bool *used = calloc((size_t)m->tensor_count + 1, sizeof *used);
	if (!used)
		return error_set(e, CODE_MACHINE, "out of memory for %d tensors", m->tensor_count);
	for (int64_t i = 0; i < count; i++) {
		const struct record *r = &records[i];
		if ((i > 0 && strcmp(r[-1].name, r->name) == 0) || (weights_only && !record_is_weight(r->name)))
			continue;
		const struct manifest_tensor *t = manifest_find(m, r->name);
		if (!t) {
			if (!r->optional)
				names_add(&missing, r->name);
			continue;
		}
		used[t - m->tensors] = true;
		if (t->dtype != r->dtype || t->dims != r->dims ||
		    memcmp(t->shape, r->shape, (size_t)t->dims * sizeof t->shape[0]) != 0) {
			char theirs[96], ours[96], text[400];
			shape_text(theirs, sizeof theirs, t->dims, t->shape);
			shape_text(ours, sizeof ours, r->dims, r->shape);
			snprintf(text, sizeof text, "%s (%s %s, the run has %s %s)", r->name, dtype_name(t->dtype),
				 theirs, dtype_name(r->dtype), ours);
			names_add(&other, text);
		}
	}
	for (int i = 0; i < m->tensor_count; i++)
		if (!used[i] && !(weights_only && !record_is_weight(m->tensors[i].name)))
			names_add(&unused, m->tensors[i].name);
	free(used);
	if (missing.count + other.count + unused.count == 0)
		return true;
	char text[900] = "";
	names_print(&missing, "it lacks", text, sizeof text);
	names_print(&other, "of another type or shape", text, sizeof text);
	names_print(&unused, "nothing takes", text, sizeof text);
	return error_set(e, CODE_CHECKPOINT, "%.100s: is not of this model%s", found->path, text);
}

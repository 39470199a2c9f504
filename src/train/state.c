#include "train/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void state_init(struct state *s)
{
	*s = (struct state){0};
}

void state_finish(struct state *s)
{
	free(s->entries);
	*s = (struct state){0};
}

void state_add(struct state *s, const struct state_entry *entry)
{
	/* '#' numbers the pieces of one tensor in a file. */
	check(entry->name[0] && memchr(entry->name, '\0', sizeof entry->name) && !strchr(entry->name, '#'));
	check(entry->dims >= 1 && entry->dims <= TENSOR_DIMS && entry->box.dims == entry->dims);
	for (int i = 0; i < TENSOR_DIMS; i++) {
		const struct box *b = &entry->box;
		int64_t size = i < entry->dims ? entry->shape[i] : 1;
		check(b->begin[i] >= 0 && b->begin[i] <= b->end[i] && b->end[i] <= size);
		check(i < entry->dims || b->end[i] == 1);
	}
	if (box_count(&entry->box) > 0)
		check(entry->local.dtype == entry->dtype && tensor_count(entry->local) >= box_count(&entry->box));
	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 64;
		struct state_entry *more = realloc(s->entries, (size_t)s->room * sizeof *more);
		if (!more)
			die(CODE_MACHINE, "out of memory for the table of %d state tensors", s->room);
		s->entries = more;
	}
	s->entries[s->count++] = *entry;
}

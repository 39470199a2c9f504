#include "par/groups.h"

#include <string.h>

enum { ALONG_TENSOR = 1 << AXIS_TENSOR, ALONG_CONTEXT = 1 << AXIS_CONTEXT, ALONG_DATA = 1 << AXIS_DATA,
       ALONG_PIPELINE = 1 << AXIS_PIPELINE };

/* A group holds the ranks that differ in these axes alone. */
static const struct {
	const char *name;
	unsigned along;
} lines[] = {
	{"world", ALONG_TENSOR | ALONG_CONTEXT | ALONG_DATA | ALONG_PIPELINE},
	{"tensor", ALONG_TENSOR},
	{"context", ALONG_CONTEXT},
	{"data", ALONG_CONTEXT | ALONG_DATA},
	{"pipeline", ALONG_PIPELINE},
};

/* Number of this rank among those that differ in the axes, the first axis fastest, and how many they are. */
static int number(const struct mesh *mesh, unsigned axes, int *size)
{
	int at = 0;
	*size = 1;
	for (int i = 0; i < AXES; i++) {
		if (!(axes >> i & 1))
			continue;
		at += *size * mesh->at[i];
		*size *= mesh->size[i];
	}
	return at;
}

static bool is_end(const struct mesh *mesh)
{
	int stage = mesh->at[AXIS_PIPELINE], stages = mesh->size[AXIS_PIPELINE];
	return stages > 1 && (stage == 0 || stage == stages - 1);
}

static unsigned along(const char *name)
{
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (strcmp(lines[i].name, name) == 0)
			return lines[i].along;
	check(strcmp(name, "embedding") == 0);
	return ALONG_PIPELINE;
}

void groups_place(const void *mesh, const char *name, int *rank, int *size)
{
	const struct mesh *m = mesh;
	*rank = number(m, along(name), size);
	if (strcmp(name, "embedding") == 0) {
		*rank = m->at[AXIS_PIPELINE] > 0;
		*size = 2;
	}
}

int groups_stride(const struct mesh *mesh, const char *name)
{
	int stride = 1;
	for (int i = 0; i < AXES && !(along(name) >> i & 1); i++)
		stride *= mesh->size[i];
	return strcmp(name, "embedding") == 0 ? stride * (mesh->size[AXIS_PIPELINE] - 1) : stride;
}

static bool split(struct comm **out, struct comm *world, const char *name, const struct mesh *mesh, bool here,
		  struct error *e)
{
	int others, rank, size;
	int color = number(mesh, ~along(name), &others);
	groups_place(mesh, name, &rank, &size);
	if (!comm_split(out, world, name, here ? color : -1, rank, e))
		return false;
	check(!*out || (comm_rank(*out) == rank && comm_size(*out) == size));
	return true;
}

bool groups_open(struct groups *g, struct comm *world, const struct mesh *mesh, struct error *e)
{
	*g = (struct groups){.world = world};
	if (split(&g->tensor, world, "tensor", mesh, true, e) && split(&g->context, world, "context", mesh, true, e) &&
	    split(&g->data, world, "data", mesh, true, e) && split(&g->pipe, world, "pipeline", mesh, true, e) &&
	    split(&g->ends, world, "embedding", mesh, is_end(mesh), e))
		return true;
	groups_close(g);
	return false;
}

void groups_close(struct groups *g)
{
	comm_close(g->ends);
	comm_close(g->pipe);
	comm_close(g->data);
	comm_close(g->context);
	comm_close(g->tensor);
	*g = (struct groups){0};
}

#include "comm/launch.h"

#include <limits.h>
#include <stdlib.h>

#include "base/text.h"

/* What launchers leave in the environment. Open MPI and MPICH's hydra start their own daemons through srun where there
 * is Slurm, so their variables count before Slurm's. Slurm's count only inside a step: a batch script has
 * SLURM_PROCID and SLURM_NTASKS too, but nobody started the other ranks there. */
static const struct {
	const char *launcher, *within, *rank, *size, *local_rank, *local_size;
} ways[] = {
	{"open mpi environment", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
	 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"pmi environment", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	{"slurm environment", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
};

/* The whole number in a variable. False without an error: it is not there and need not be. */
static bool number(const char *name, bool needed, int *out, struct error *e)
{
	const char *text = name ? getenv(name) : NULL;
	int64_t value;
	if (!text && !needed)
		return false;
	if (!text)
		return error_set(e, CODE_USAGE, "environment: %s is not set though its launcher's other variables are", name);
	if (!text_to_count(text, &value) || value < 0 || value > INT_MAX)
		return error_set(e, CODE_USAGE, "environment: %s=%s is not a rank or a number of ranks", name, text);
	*out = (int)value;
	return true;
}

/* Tasks on this node from Slurm's list for all nodes, "4(x3),2": four on each of three nodes, then two. */
static bool slurm_local_size(int *out)
{
	const char *list = getenv("SLURM_STEP_TASKS_PER_NODE"), *node = getenv("SLURM_NODEID");
	int64_t left;
	if (!list || !node || !text_to_count(node, &left))
		return false;
	for (;;) {
		char *end;
		long tasks = strtol(list, &end, 10), nodes = 1;
		if (end == list || tasks < 1 || tasks > INT_MAX)
			return false;
		if (end[0] == '(' && end[1] == 'x')
			nodes = strtol(end + 2, &end, 10);
		if (*end == ')')
			end++;
		if (left < nodes) {
			*out = (int)tasks;
			return true;
		}
		left -= nodes;
		if (*end != ',')
			return false;
		list = end + 1;
	}
}

static bool environment_detect(struct launch *l, struct error *e)
{
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		if (!getenv(ways[i].within))
			continue;
		l->launcher = ways[i].launcher;
		if (!number(ways[i].rank, true, &l->rank, e) || !number(ways[i].size, true, &l->size, e))
			return false;
		if (!number(ways[i].local_rank, false, &l->local_rank, e) && e->code)
			return false;
		if (!ways[i].local_size)
			slurm_local_size(&l->local_size);
		else if (!number(ways[i].local_size, false, &l->local_size, e) && e->code)
			return false;
		return true;
	}
	return false;
}

static void environment_finish(void)
{
}

/* These launchers notice a rank's exit code themselves; nothing can be said to them. */
static void environment_abort(int code, const char *cause)
{
}

const struct launcher launcher_environment = {
	"environment", environment_detect, environment_finish, environment_abort,
};

#include "comm/launch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/text.h"
#include "comm/meet.h"

enum { PORT_FIRST = 20000, PORTS = 12000 }; /* below those that systems give out by themselves */

/* What launchers leave in the environment. Open MPI and MPICH's hydra start their own daemons through srun where there
 * is Slurm, so their variables count before Slurm's. Slurm's count only inside a step: a batch script has
 * SLURM_PROCID and SLURM_NTASKS too, but nobody started the other ranks there. */
static const struct {
	const char *launcher, *within, *rank, *size, *local_rank, *local_size, *node;
} ways[] = {
	{"open mpi environment", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
	 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
	{"pmi environment", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
	{"slurm environment", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_NODEID"},
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
		return number(ways[i].node, false, &l->node, e) || !e->code;
	}
	return false;
}

/* The first name of Slurm's list of nodes: "a", "a,b", "a[003-004,7],b": rank 0 is there. */
static bool first_node(char out[MEET_HOST], const char *list)
{
	size_t name = strcspn(list, "[,"), inside = list[name] == '[' ? strcspn(list + name + 1, "-,]") : 0;
	int n = snprintf(out, MEET_HOST, "%.*s%.*s", (int)name, list, (int)inside, list + name + 1);
	return n > 0 && n < MEET_HOST;
}

static const char *variable(const char *name)
{
	const char *text = getenv(name);
	return text ? text : "";
}

/* Where rank 0 waits for the others: MASTER_ADDR and MASTER_PORT where somebody has set them; else the first node of
 * Slurm's step, or this machine when all ranks are on it, at a port that follows from what names the job. */
static bool place(const struct launch *l, struct meet_place *p, struct error *e)
{
	const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"), *nodes = getenv("SLURM_STEP_NODELIST");
	char job[256];
	int64_t number;
	snprintf(job, sizeof job, "%s.%s.%s", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"), variable("PMI_ID"));
	if (l->local_size == l->size && !getenv("SLURM_JOB_ID"))
		snprintf(job, sizeof job, "%ld", (long)getppid()); /* one launcher started them all here */
	*p = (struct meet_place){.token = XXH3_64bits(job, strlen(job))};
	p->port = (uint16_t)(PORT_FIRST + p->token % PORTS);
	if (port && text_to_count(port, &number) && number > 0 && number < 65536)
		p->port = (uint16_t)number;
	if (address && strlen(address) < sizeof p->host)
		strcpy(p->host, address);
	else if (l->local_size == l->size)
		strcpy(p->host, "127.0.0.1");
	else if (!nodes || !first_node(p->host, nodes))
		return error_set(e, CODE_MACHINE, "%s: does not say where rank 0 is: set MASTER_ADDR to its machine, or start with "
				 "`srun --mpi=pmix` or Open MPI's `mpirun`", l->launcher);
	return true;
}

static bool environment_gather(const struct launch *l, void *out, const void *in, size_t bytes, double seconds, struct error *e)
{
	struct meet_place p;
	return place(l, &p, e) && meet_gather(&p, l->rank, l->size, out, in, bytes, seconds, e);
}

static void environment_finish(void)
{
}

/* These launchers notice a rank's exit code themselves; nothing can be said to them. */
static void environment_abort(int code, const char *cause)
{
}

const struct launcher launcher_environment = {
	"environment", environment_detect, environment_gather, environment_finish, environment_abort,
};

/* Recompute's pairs of ops on the CPU. Argument: a column (plain, or a set of instructions). */
#include <string.h>

#include "again.h"
#include "dev/cpu/cpu.h"

/* Whether the column is to be had here. */
static bool present(const char *column)
{
	struct dev_options options = {.threads = 1, .instructions = column};
	struct device *dev;
	struct error e;
	if (strcmp(column, "plain") == 0)
		return true;
	if (!dev_open(&dev, &backend_cpu, &options, &e))
		return false;
	dev_close(dev);
	return true;
}

int main(int argc, char **argv)
{
	const char *column = argc > 1 ? argv[1] : "plain";
	return present(column) ? again_run(&backend_cpu, column, F64) : 77; /* skipped */
}

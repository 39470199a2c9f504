#include "backends.h"

#include "build-config.h"
#include "dev/cpu/cpu.h"

const struct backend *const backends[] = {
	&backend_cpu,
	NULL,
};

const struct launcher *const launchers[] = {
#if HAVE_PMIX
	&launcher_pmix,
#endif
	&launcher_environment,
	&launcher_alone,
	NULL,
};

const struct transport *backends_transport(const struct backend *backend, int size)
{
	(void)backend;
	if (size == 1)
		return &transport_self;
#if HAVE_MPI
	return &transport_mpi;
#else
	return NULL;
#endif
}

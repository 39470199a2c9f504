/* The lists of a program whose only device is the emulated card. */
#include "backends.h"

#include "build-config.h"
#include "cuda/backend.h"

const struct backend *const backends[] = {
	&backend_cuda,
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

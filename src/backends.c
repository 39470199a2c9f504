#include "backends.h"

#include "build-config.h"
#include "dev/cpu/cpu.h"
#if HAVE_CUDA
#include "cuda/backend.h"
#endif

const struct backend *const backends[] = {
#if HAVE_CUDA
	&backend_cuda,
#endif
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

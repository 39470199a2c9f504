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

const struct transport *backends_transport(const struct device *dev, const struct launch *launch, struct error *e)
{
	if (launch->size == 1)
		return &transport_self;
#if HAVE_NCCL
	bool own;
	if (dev->backend->apart && !launch_all_differ(&own, dev->identity, dev->timeout, e))
		return NULL;
	if (dev->backend->apart && own)
		return &transport_nccl;
#endif
#if HAVE_MPI
	return &transport_mpi;
#else
	error_set(e, CODE_USAGE, "this build has no way to connect %d ranks%s: it was made without MPI; start one rank, or install "
		  "Open MPI and build again", launch->size, dev->backend->apart ? " that share cards" : "");
	return NULL;
#endif
}

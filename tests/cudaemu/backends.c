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

const struct transport *backends_transport(const struct device *dev, const struct launch *launch, struct error *e)
{
	if (launch->size == 1)
		return &transport_self;
#if EMULATED_NCCL
	bool own;
	if (!launch_all_differ(&own, dev->identity, dev->timeout, e))
		return NULL;
	if (own)
		return &transport_nccl;
#endif
#if HAVE_MPI
	return &transport_mpi;
#else
	error_set(e, CODE_USAGE, "made without MPI");
	return NULL;
#endif
}

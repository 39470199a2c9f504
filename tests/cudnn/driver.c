/* A driver without a card: what cuDNN asks of libcuda.so.1 while it makes a plan for a card that is only described. It takes
 * each kernel that cuDNN has compiled, and runs none. Built as a library of that name, for test_plans.c. */
enum { SUCCESS = 0, NO_DEVICE = 100, VERSION = 13000 };

static char anything[64];

int cuLibraryLoadData(void **library);
int cuLibraryLoadData(void **library)
{
	*library = anything;
	return SUCCESS;
}

int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel)
{
	*kernel = anything;
	return SUCCESS;
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
	*version = VERSION;
	return SUCCESS;
}

int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text)
{
	*text = error == SUCCESS ? "no error" : "no card";
	return SUCCESS;
}

#define REFUSE(name)           \
	int name(void);        \
	int name(void)         \
	{                      \
		return NO_DEVICE; \
	}
REFUSE(cuInit) REFUSE(cuDeviceGetCount) REFUSE(cuDeviceGet) REFUSE(cuDeviceGetAttribute) REFUSE(cuGetErrorName)
REFUSE(cuCtxGetCurrent) REFUSE(cuCtxGetDevice) REFUSE(cuCtxGetLimit) REFUSE(cuCtxPopCurrent) REFUSE(cuCtxPushCurrent)
REFUSE(cuDevicePrimaryCtxRelease) REFUSE(cuDevicePrimaryCtxReset) REFUSE(cuDevicePrimaryCtxRetain) REFUSE(cuStreamGetCtx)
REFUSE(cuFuncGetAttribute) REFUSE(cuFuncSetAttribute) REFUSE(cuKernelGetAttribute) REFUSE(cuKernelSetAttribute)
REFUSE(cuLaunchCooperativeKernel) REFUSE(cuLaunchKernel) REFUSE(cuLaunchKernelEx) REFUSE(cuLibraryLoadFromFile)
REFUSE(cuLibraryUnload) REFUSE(cuLinkAddData) REFUSE(cuLinkAddData_v2) REFUSE(cuLinkAddFile_v2) REFUSE(cuLinkComplete)
REFUSE(cuLinkCreate) REFUSE(cuLinkCreate_v2) REFUSE(cuLinkDestroy) REFUSE(cuMemcpyDtoH_v2) REFUSE(cuModuleGetFunction)
REFUSE(cuModuleGetGlobal_v2) REFUSE(cuModuleLoadData) REFUSE(cuModuleLoadDataEx) REFUSE(cuModuleLoadFatBinary)
REFUSE(cuModuleUnload) REFUSE(cuOccupancyMaxActiveBlocksPerMultiprocessor) REFUSE(cuOccupancyMaxPotentialClusterSize)
REFUSE(cuStreamSynchronize) REFUSE(cuTensorMapEncodeTiled)

/* Recompute's pairs of ops by the CUDA backend, on the emulator. */
#include "again.h"
#include "cuda/backend.h"

int main(void)
{
	return again_run(&backend_cuda, NULL, F32);
}

#include "dev/cpu/parallel.h"

#include <sched.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "dev/cpu/cpu.h"

#ifdef _OPENMP
void parallel(struct device *dev, int64_t parts, void (*body)(void *context, int64_t part, int thread), void *context)
{
	int threads = parts < dev->threads ? (int)parts : dev->threads;
	if (threads <= 1) {
		for (int64_t i = 0; i < parts; i++) {
			body(context, i, 0);
			cpu_poll(dev);
		}
		return;
	}
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
	for (int64_t i = 0; i < parts; i++) {
		int thread = omp_get_thread_num();
		body(context, i, thread);
		if (thread == 0)
			cpu_poll(dev);
	}
}
#else
void parallel(struct device *dev, int64_t parts, void (*body)(void *context, int64_t part, int thread), void *context)
{
	for (int64_t i = 0; i < parts; i++) {
		body(context, i, 0);
		cpu_poll(dev);
	}
}
#endif

int parallel_threads(int wish)
{
#ifdef _OPENMP
	return wish > 0 ? wish : omp_get_num_procs(); /* counts the cores of the affinity mask */
#else
	(void)wish;
	return 1;
#endif
}

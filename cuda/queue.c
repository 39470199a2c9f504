#include "card.h"

#include <cuda.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"

/* The one call that only the driver has: a stream waits until a number in memory is large enough. */
typedef CUresult stream_wait_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags);
static stream_wait_value *wait_value;

void card_open_queues(struct card *c)
{
	enum cudaDriverEntryPointQueryResult found;
	void *entry;
	CALL(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault, &found));
	if (found != cudaDriverEntryPointSuccess)
		die(CODE_MACHINE, "the driver has no cuStreamWaitValue32: it is older than CUDA 12");
	memcpy(&wait_value, &entry, sizeof entry);
	CALL(cudaHostAlloc((void **)&c->flags, QUEUES * sizeof *c->flags, cudaHostAllocMapped));
	CALL(cudaHostAlloc((void **)&c->stage_memory, (size_t)STAGES * STAGE_BYTES, cudaHostAllocDefault));
	for (int q = 0; q < QUEUES; q++) {
		struct stream *s = &c->streams[q];
		CALL(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
		for (int i = 0; i < MARKS; i++)
			CALL(cudaEventCreateWithFlags(&s->marks[i], cudaEventDisableTiming));
		for (int i = 0; i < POSTS; i++)
			CALL(cudaEventCreateWithFlags(&s->posts[i].start, cudaEventDisableTiming));
		s->flag = c->flags + q;
		*s->flag = 0;
	}
	for (int i = 0; i < STAGES; i++) {
		c->stages[i].room = c->stage_memory + (size_t)i * STAGE_BYTES;
		CALL(cudaEventCreateWithFlags(&c->stages[i].copied, cudaEventDisableTiming));
	}
}

void card_close_queues(struct card *c)
{
	for (int q = 0; q < QUEUES; q++) {
		struct stream *s = &c->streams[q];
		cudaStreamDestroy(s->stream);
		for (int i = 0; i < MARKS; i++)
			cudaEventDestroy(s->marks[i]);
		for (int i = 0; i < POSTS; i++)
			cudaEventDestroy(s->posts[i].start);
	}
	for (int i = 0; i < STAGES; i++)
		cudaEventDestroy(c->stages[i].copied);
	cudaFreeHost(c->stage_memory);
	cudaFreeHost(c->flags);
}

cudaStream_t card_stream(struct card *c, enum queue q)
{
	if (q == Q_COMPUTE)
		graphs_flush(c->graphs);
	return c->streams[q].stream;
}

static bool happened(cudaEvent_t event)
{
	cudaError_t e = cudaEventQuery(event);
	if (e != cudaSuccess && e != cudaErrorNotReady)
		die(CODE_MACHINE, "the card was lost: %s (%s); the kernel's log may say why (Xid)", cudaGetErrorString(e),
		    cudaGetErrorName(e));
	return e == cudaSuccess;
}

void card_poll(struct device *dev)
{
	struct card *c = card_of(dev);
	if (c->polling)
		return; /* a work's advance came back here */
	c->polling = true;
	for (int q = 0; q < QUEUES; q++) {
		struct stream *s = &c->streams[q];
		while (s->done < s->posted) {
			uint64_t at = s->done % POSTS;
			if (!happened(s->posts[at].start) || !s->posts[at].work->advance(s->posts[at].work))
				break;
			s->done++;
			__atomic_store_n(s->flag, (uint32_t)s->done, __ATOMIC_SEQ_CST);
		}
	}
	c->polling = false;
}

/* One round of waiting, which began at `begin`: host-driven work goes on, others may run. */
static void hold(struct device *dev, double begin)
{
	struct card *c = card_of(dev);
	card_poll(dev);
	sched_yield();
	bool late = dev->timeout > 0 && clock_now() - begin >= dev->timeout;
	if (dev->watch)
		dev->watch(dev, late);
	if (!late)
		return;
	for (int q = 0; q < QUEUES; q++) {
		struct stream *s = &c->streams[q];
		if (s->done < s->posted)
			die(CODE_PEER, "%s in group %s: nothing came for %g s", s->posts[s->done % POSTS].work->call,
			    s->posts[s->done % POSTS].work->group, dev->timeout);
	}
	die(CODE_PEER, "the card did not finish its work in %g s", dev->timeout);
}

/* The host waits for an event, pushing host-driven work forward meanwhile. */
static void await(struct device *dev, cudaEvent_t event)
{
	double begin = clock_now();
	while (!happened(event))
		hold(dev, begin);
}

struct mark card_mark(struct device *dev, enum queue q)
{
	struct stream *s = &card_of(dev)->streams[q];
	card_poll(dev);
	uint64_t n = s->marked++;
	CALL(cudaEventRecord(s->marks[n % MARKS], card_stream(card_of(dev), q)));
	return (struct mark){q, n};
}

void card_wait(struct device *dev, enum queue q, struct mark m)
{
	struct card *c = card_of(dev);
	CALL(cudaStreamWaitEvent(card_stream(c, q), c->streams[m.queue].marks[m.count % MARKS], 0));
}

/* A read whose copy has happened reaches its place. */
static void land(struct stage *s)
{
	if (s->used && s->to)
		memcpy(s->to, s->room, s->bytes);
	s->used = false;
}

/* All that was queued comes to its end: between steps nobody has to queue more for that. */
static void make_graphs(struct device *dev)
{
	struct card *c = card_of(dev);
	for (int q = 0; q < QUEUES; q++)
		await(dev, c->streams[q].marks[card_mark(dev, (enum queue)q).count % MARKS]);
	graphs_make(c->graphs);
}

void card_finish(struct device *dev, struct mark m)
{
	struct card *c = card_of(dev);
	await(dev, c->streams[m.queue].marks[m.count % MARKS]);
	for (int i = 0; i < STAGES; i++) {
		struct stage *s = &c->stages[(c->stage + i) % STAGES]; /* the oldest first */
		if (s->used && happened(s->copied))
			land(s);
	}
	if (graphs_due(c->graphs))
		make_graphs(dev);
}

void card_post(struct device *dev, enum queue q, struct work *w)
{
	struct card *c = card_of(dev);
	struct stream *s = &c->streams[q];
	uint64_t at = s->posted % POSTS;
	for (double begin = clock_now(); s->posted - s->done == POSTS;)
		hold(dev, begin);
	s->posts[at].work = w;
	CALL(cudaEventRecord(s->posts[at].start, card_stream(c, q)));
	s->posted++;
	if (c->rehearsing) { /* loading a kernel may wait for all streams, so none may wait for the host */
		for (double begin = clock_now(); s->done < s->posted;)
			hold(dev, begin);
		return;
	}
	CUresult e = wait_value((CUstream)s->stream, (CUdeviceptr)(uintptr_t)s->flag, (cuuint32_t)s->posted,
				CU_STREAM_WAIT_VALUE_GEQ);
	if (e != CUDA_SUCCESS)
		die(CODE_MACHINE, "cuStreamWaitValue32: error %d", (int)e);
	card_poll(dev);
}

/* The runtime copies to and from memory that is not pinned while the host stands in the call, so nothing may be before it
 * that the host has to push. */
static void drain(struct device *dev, enum queue q)
{
	struct mark m = card_mark(dev, q);
	await(dev, card_of(dev)->streams[q].marks[m.count % MARKS]);
}

static struct stage *next_stage(struct device *dev)
{
	struct card *c = card_of(dev);
	struct stage *s = &c->stages[c->stage];
	c->stage = (c->stage + 1) % STAGES;
	if (s->used) {
		await(dev, s->copied);
		land(s);
	}
	s->used = true;
	return s;
}

void card_write(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	cudaStream_t stream = card_stream(card_of(dev), q);
	bool pinned = card_pinned(card_of(dev), from);
	if (pinned || bytes > STAGE_BYTES) {
		if (!pinned)
			drain(dev, q);
		CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
		return;
	}
	struct stage *s = next_stage(dev);
	s->to = NULL;
	memcpy(s->room, from, bytes);
	CALL(cudaMemcpyAsync(to, s->room, bytes, cudaMemcpyHostToDevice, stream));
	CALL(cudaEventRecord(s->copied, stream));
}

void card_read(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	cudaStream_t stream = card_stream(card_of(dev), q);
	bool pinned = card_pinned(card_of(dev), to);
	if (pinned || bytes > STAGE_BYTES) {
		if (!pinned)
			drain(dev, q);
		CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
		return;
	}
	struct stage *s = next_stage(dev);
	s->to = to;
	s->bytes = bytes;
	CALL(cudaMemcpyAsync(s->room, from, bytes, cudaMemcpyDeviceToHost, stream));
	CALL(cudaEventRecord(s->copied, stream));
}

void card_copy(struct device *dev, enum queue q, void *to, const void *from, size_t bytes)
{
	CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, card_stream(card_of(dev), q)));
}

void card_zero(struct device *dev, enum queue q, void *to, size_t bytes)
{
	CALL(cudaMemsetAsync(to, 0, bytes, card_stream(card_of(dev), q)));
}

/* The runtime's calls that the CUDA backend makes, on the emulator. Streams are lists of what was queued; nothing runs
 * before the host asks for an event, and then streams take turns in the order that emu_set_backwards says. So work that
 * is not ordered by an event runs at a time that a test did not expect. */
#include "runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <deque>
#include <map>
#include <vector>

#include "emu.h"
#include "memory.h"

struct item {
	std::function<bool()> run; /* true: done */
	bool memory;               /* touches the card's */
};
struct CUstream_st {
	std::deque<item> items;
};
struct CUevent_st {
	uint64_t recorded, happened;
};
struct CUgraph_st {
	std::deque<item> items;
};
struct CUgraphExec_st {
	std::deque<item> items;
};

static std::vector<cudaStream_t> streams;
static bool running;

static std::map<const char *, size_t> pinned; /* by address */

static bool is_pinned(const void *at)
{
	auto next = pinned.upper_bound(static_cast<const char *>(at));
	if (next == pinned.begin())
		return false;
	--next;
	return at < next->first + next->second;
}

[[noreturn]] static void wrong(const char *what)
{
	fprintf(stderr, "cudaemu: %s\n", what);
	_Exit(EMU_FAULT);
}

/* The stream that is being captured, what was queued on it since, and whether a call broke the capture. */
static cudaStream_t capturing;
static CUgraph_st *captured;
static bool broken;
static emu_counts counts;

const emu_counts *emu_counted(void)
{
	return &counts;
}

/* A call that nobody may make while a stream is captured (by the thread that captures it). */
static bool forbidden()
{
	broken = broken || capturing;
	return capturing;
}

void emu_enqueue(cudaStream_t stream, std::function<bool()> run, bool memory)
{
	if (!stream && capturing)
		wrong("work on the legacy stream while another one is captured: it would not be part of the graph");
	counts.direct += memory && stream != capturing;
	if (stream && stream == capturing)
		captured->items.push_back({std::move(run), memory});
	else if (stream)
		stream->items.push_back({std::move(run), memory});
	else if (!run())
		abort();
}

void emu_enqueue_once(cudaStream_t stream, std::function<bool()> run)
{
	if (stream == capturing && stream)
		wrong("communication on a stream that is captured");
	emu_enqueue(stream, std::move(run));
}

/* What the card is told to be or to do, from the environment: CUDAEMU_CARDS, their number; CUDAEMU_DRIVER, the driver's
 * version; CUDAEMU_MEMORY, bytes; CUDAEMU_LOST, queries of events after which every call of rank 0 says that it
 * is gone: a job in which two cards went at once might well name both; CUDAEMU_STREAMS=-1, the stream made last comes first. */
static long told(const char *name, long otherwise)
{
	const char *text = getenv(name);
	return text ? atol(text) : otherwise;
}

/* Runs what can run. */
static void pump()
{
	static const bool turned = told("CUDAEMU_STREAMS", 1) < 0;
	if (running)
		return;
	running = true;
	for (bool moved = true; moved;) {
		moved = false;
		for (size_t i = 0; i < streams.size(); i++) {
			cudaStream_t s = streams[emu_backwards() != turned ? streams.size() - 1 - i : i];
			while (!s->items.empty()) {
				if (s->items.front().memory)
					memory_open();
				if (!s->items.front().run())
					break;
				s->items.pop_front();
				moved = true;
			}
		}
	}
	memory_close();
	running = false;
}

void emu_drain(cudaStream_t stream)
{
	pump();
	if (stream && !stream->items.empty())
		wrong("the host waits for a stream that waits for the host");
}

static long used, queries;

static bool lost()
{
	static const long limit = told("OMPI_COMM_WORLD_RANK", 0) == 0 ? told("CUDAEMU_LOST", 0) : 0;
	return limit && ++queries > limit;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = int(told("CUDAEMU_CARDS", 1));
	return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
	*version = int(told("CUDAEMU_DRIVER", CUDART_VERSION));
	return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}
cudaError_t cudaSetDevice(int)
{
	return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
	memset(p, 0, sizeof *p);
	strcpy(p->name, "emulated card");
	p->major = 8;
	return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int room, int device)
{
	snprintf(id, size_t(room), "0000:%02x:00.0", device);
	return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *room, size_t *all)
{
	*room = *all = size_t(told("CUDAEMU_MEMORY", 1l << 30));
	*room -= size_t(used);
	return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e)
{
	return e == cudaErrorMemoryAllocation ? "out of memory" : e == cudaErrorECCUncorrectable
		? "uncorrectable ECC error encountered" : "error of the emulator";
}
const char *cudaGetErrorName(cudaError_t)
{
	return "emulated";
}
cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	if (used + long(bytes) > told("CUDAEMU_MEMORY", 1l << 30))
		return cudaErrorMemoryAllocation;
	used += long(bytes);
	memory_guard();
	memory_open();
	*p = emu_take(bytes);
	memory_close();
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *p)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	emu_give_back(p);
	return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	*p = malloc(bytes);
	if (*p)
		pinned[static_cast<const char *>(*p)] = bytes;
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *p)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	if (p && !pinned.erase(static_cast<const char *>(p)))
		wrong("cudaFreeHost of memory that cudaHostAlloc did not give");
	free(p);
	return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	memory_open();
	memset(p, value, bytes);
	memory_close();
	return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	emu_drain(stream == cudaStreamLegacy ? nullptr : stream);
	return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
	emu_enqueue(stream, [=] {
		memset(p, value, bytes);
		return true;
	});
	return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
	bool down = kind == cudaMemcpyDeviceToHost, up = kind == cudaMemcpyHostToDevice;
	if (memory_is_device(from) != !up || memory_is_device(to) != !down)
		wrong("a copy whose kind is not that of its memory");
	bool held = (down && !is_pinned(to)) || (up && !is_pinned(from));
	if (held && forbidden())
		return cudaErrorStreamCaptureUnsupported;
	emu_enqueue(stream, [=] {
		memmove(to, from, bytes);
		return true;
	});
	if (held)
		emu_drain(stream);
	return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
			      cudaMemcpyKind kind, cudaStream_t stream)
{
	bool down = kind == cudaMemcpyDeviceToHost, up = kind == cudaMemcpyHostToDevice;
	if (width > to_pitch || width > from_pitch)
		wrong("a copy of rows that overlap");
	if (memory_is_device(from) != !up || memory_is_device(to) != !down)
		wrong("a copy whose kind is not that of its memory");
	emu_enqueue(stream, [=] {
		for (size_t i = 0; i < rows; i++)
			memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
		return true;
	});
	if ((down && !is_pinned(to)) || (up && !is_pinned(from)))
		emu_drain(stream);
	return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
	*stream = new CUstream_st;
	streams.push_back(*stream);
	return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	for (size_t i = 0; i < streams.size(); i++) {
		if (streams[i] == stream)
			streams.erase(streams.begin() + ptrdiff_t(i--));
	}
	delete stream;
	return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	*event = new CUevent_st();
	return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	pump();
	if (event->happened != event->recorded)
		wrong("the host waits for an event that waits for the host");
	return cudaSuccess;
}
/* Different each time, so that what is chosen by timing is. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
	uint64_t x = uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
	*ms = 1 + float(x >> 40) / float(1 << 24);
	return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	delete event;
	return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	if (stream == capturing && forbidden()) /* a card captures these; the emulator does not */
		return cudaErrorStreamCaptureUnsupported;
	uint64_t n = ++event->recorded;
	emu_enqueue(
		stream,
		[=] {
			event->happened = n;
			return true;
		},
		false);
	return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	if (lost())
		return cudaErrorECCUncorrectable;
	pump();
	return event->happened == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
	if (stream == capturing && forbidden()) /* a card captures these; the emulator does not */
		return cudaErrorStreamCaptureUnsupported;
	uint64_t n = event->recorded;
	emu_enqueue(stream, [=] { return event->happened >= n; }, false);
	return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
	if (forbidden())
		return cudaErrorStreamCaptureUnsupported;
	pump();
	return cudaSuccess;
}

/* What is queued on the stream until the end is not run, but kept. Other threads' calls (NCCL's) go on, but not in the global
 * mode. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
	if (!stream || stream == cudaStreamLegacy)
		return cudaErrorStreamCaptureUnsupported;
	if (mode == cudaStreamCaptureModeGlobal)
		wrong("a capture in the global mode, which other threads' calls may break");
	if (capturing)
		return cudaErrorIllegalState;
	capturing = stream;
	captured = new CUgraph_st;
	broken = false;
	return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	*graph = nullptr;
	if (!capturing || stream != capturing)
		return cudaErrorIllegalState;
	capturing = nullptr;
	if (!broken)
		*graph = captured;
	else
		delete captured;
	return broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
	if (!graph || flags)
		return cudaErrorInvalidValue;
	pump();
	for (cudaStream_t s : streams)
		if (!s->items.empty())
			wrong("a graph is made, which may hold the host, while a stream waits for the host or a peer");
	*out = new CUgraphExec_st{graph->items};
	counts.graphs++;
	return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream)
{
	return stream ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	delete graph;
	return cudaSuccess;
}
/* In flight it may be: what was launched has its own copy of the work. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
	delete graph;
	counts.graphs--;
	return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
	if (forbidden() || !stream)
		return cudaErrorStreamCaptureUnsupported;
	for (const item &i : graph->items)
		stream->items.push_back(i);
	counts.launches++;
	counts.launched += long(graph->items.size());
	return cudaSuccess;
}

static CUresult wait_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned)
{
	volatile uint32_t *flag = reinterpret_cast<volatile uint32_t *>(at);
	if (stream == capturing && forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	emu_enqueue(stream, [=] { return int32_t(*flag - value) >= 0; }, false);
	return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **entry, unsigned, unsigned long long,
					     cudaDriverEntryPointQueryResult *result)
{
	*entry = reinterpret_cast<void *>(wait_value);
	*result = cudaDriverEntryPointSuccess;
	return cudaSuccess;
}
}

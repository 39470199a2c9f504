/* The calls of NCCL that the CUDA backend makes, on the emulator, over MPI. What is queued on a stream runs when the stream
 * comes to it: device memory is copied to the host, MPI moves it, what came is copied back. Sums are in rank order, in
 * FP32, rounded once. Communicators and calls are under way for a few polls, as non-blocking ones are; a call that does not
 * wait for them, or that names memory which is not the card's, fails. Two streams of one rank do not wait for each other. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <memory>
#include <mpi.h>
#include <nccl.h>
#include <vector>

#include "emu.h"
#include "memory.h"
#include "runtime.h"

enum { POLLS = 3, TAG = 7 };

struct ncclComm {
	MPI_Comm mpi;
	int rank, size;
	int busy; /* polls until what is under way is done */
	uint64_t called, done; /* calls of one communicator run in the order of the host, whatever their streams */
	bool finalized;
	ncclResult_t error;
};

static int open_comms, calls;
static bool silent;

[[noreturn]] static void wrong(const char *what)
{
	fprintf(stderr, "cudaemu: nccl: %s\n", what);
	_Exit(EMU_FAULT);
}

static size_t size_of(ncclDataType_t t)
{
	switch (t) {
	case ncclInt8:
	case ncclUint8:
		return 1;
	case ncclFloat16:
	case ncclBfloat16:
		return 2;
	case ncclInt32:
	case ncclUint32:
	case ncclFloat32:
		return 4;
	default:
		return 8;
	}
}

static void add(void *sum, const char *parts, size_t stride, int ranks, size_t n, ncclDataType_t type)
{
	for (size_t i = 0; i < n; i++) {
		float s = 0;
		double d = 0;
		for (int r = 0; r < ranks; r++) {
			const char *at = parts + size_t(r) * stride + i * size_of(type);
			if (type == ncclFloat64) {
				d = r ? d + *reinterpret_cast<const double *>(at) : *reinterpret_cast<const double *>(at);
				continue;
			}
			float v = type == ncclFloat32 ? *reinterpret_cast<const float *>(at)
				: type == ncclFloat16 ? __half2float(*reinterpret_cast<const __half *>(at))
				: type == ncclBfloat16 ? __bfloat162float(*reinterpret_cast<const __nv_bfloat16 *>(at)) : NAN;
			s = r ? s + v : v;
		}
		char *to = static_cast<char *>(sum) + i * size_of(type);
		if (type == ncclFloat64)
			*reinterpret_cast<double *>(to) = d;
		else if (type == ncclFloat32)
			*reinterpret_cast<float *>(to) = s;
		else if (type == ncclFloat16)
			*reinterpret_cast<__half *>(to) = __float2half_rn(s);
		else
			*reinterpret_cast<__nv_bfloat16 *>(to) = __float2bfloat16_rn(s);
	}
}

/* What a call must find: nothing under way, and the card's own memory. CUDAEMU_NCCL_FAILS=n: the n-th call of a process
 * breaks its communicator; CUDAEMU_NCCL_SILENT=r:n: from the n-th call on, rank r of a communicator sends nothing. */
static ncclResult_t begin(ncclComm_t c, const void *a, const void *b)
{
	const char *fails = getenv("CUDAEMU_NCCL_FAILS"), *mute = getenv("CUDAEMU_NCCL_SILENT");
	if (c->busy)
		wrong("a call while another is under way");
	if (c->finalized)
		wrong("a call after ncclCommFinalize");
	if (!memory_is_device(a) || !memory_is_device(b))
		wrong("memory that is not the card's");
	calls++;
	if (mute && c->rank == atoi(mute) && calls >= atoi(strchr(mute, ':') + 1))
		silent = true;
	if (fails && calls == atoi(fails)) {
		c->error = ncclRemoteError;
		return ncclSuccess;
	}
	c->busy = POLLS;
	return ncclInProgress;
}

/* A call whose every rank sends the same count to all. */
struct gathering {
	std::vector<char> in, all;
	MPI_Request request;
	bool begun = false;
};

static ncclResult_t gather(ncclComm_t c, cudaStream_t stream, const void *in, size_t bytes,
			   std::function<void(const char *all)> use, const void *out)
{
	auto g = std::make_shared<gathering>();
	ncclResult_t rc = begin(c, in, out);
	if (c->error)
		return rc;
	uint64_t turn = c->called++;
	emu_enqueue_once(stream, [=] {
		int done = 0;
		if (c->done != turn || silent)
			return false;
		if (!g->begun) {
			g->in.assign(static_cast<const char *>(in), static_cast<const char *>(in) + bytes);
			g->all.resize(bytes * size_t(c->size));
			MPI_Iallgather(g->in.data(), int(bytes), MPI_BYTE, g->all.data(), int(bytes), MPI_BYTE, c->mpi, &g->request);
			g->begun = true;
		}
		MPI_Test(&g->request, &done, MPI_STATUS_IGNORE);
		if (done) {
			use(g->all.data());
			c->done++;
		}
		return done != 0;
	});
	return rc;
}

/* The sends and receives of a group. */
struct transfer {
	bool send;
	void *at;
	size_t bytes;
	int peer;
	std::vector<char> host;
};
struct exchange {
	std::vector<transfer> list;
	std::vector<MPI_Request> requests;
	ncclComm_t comm = nullptr;
	cudaStream_t stream = nullptr;
};
static std::shared_ptr<exchange> group;

static ncclResult_t join(bool send, const void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	if (!group)
		wrong("a send or receive outside of a group");
	if (group->comm && (group->comm != c || group->stream != stream))
		wrong("a group over two communicators or streams");
	if (!memory_is_device(at))
		wrong("memory that is not the card's");
	group->comm = c;
	group->stream = stream;
	group->list.push_back({send, const_cast<void *>(at), count * size_of(type), peer, {}});
	return ncclSuccess;
}

extern "C" {

const char *ncclGetErrorString(ncclResult_t rc)
{
	return rc == ncclRemoteError ? "remote process exited or there was a network error" : "error of the emulator";
}
const char *ncclGetLastError(ncclComm_t)
{
	return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 0x5a, sizeof *id);
	return ncclSuccess;
}

static ncclComm_t make(MPI_Comm mpi)
{
	ncclComm_t c = new ncclComm();
	c->mpi = mpi;
	c->busy = POLLS;
	c->error = ncclSuccess;
	MPI_Comm_rank(mpi, &c->rank);
	MPI_Comm_size(mpi, &c->size);
	open_comms++;
	return c;
}

static void must_not_block(const ncclConfig_t *config)
{
	if (config->blocking != 0 || config->splitShare != 0)
		wrong("a communicator that blocks or shares");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	int ready = 0;
	ncclUniqueId want;
	MPI_Comm mpi;
	ncclGetUniqueId(&want);
	if (memcmp(&id, &want, sizeof id) != 0)
		wrong("rank 0's id did not come here");
	must_not_block(config);
	MPI_Initialized(&ready);
	if (!ready)
		MPI_Init(nullptr, nullptr);
	MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
	*out = make(mpi);
	if ((*out)->size != size || (*out)->rank != rank)
		wrong("MPI's ranks are others");
	return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	MPI_Comm mpi;
	if (c->busy)
		wrong("a split while a call is under way");
	must_not_block(config);
	MPI_Comm_split(c->mpi, color == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : color, key, &mpi);
	*out = mpi == MPI_COMM_NULL ? nullptr : make(mpi);
	c->busy = POLLS;
	return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	*state = c->error ? c->error : c->busy && --c->busy ? ncclInProgress : ncclSuccess;
	return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
	*rank = c->rank;
	return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t c, int *count)
{
	*count = c->size;
	return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	c->finalized = true;
	c->busy = POLLS;
	return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	if (!c->finalized || c->busy)
		wrong("a communicator is destroyed before it was finalized");
	MPI_Comm_free(&c->mpi);
	delete c;
	if (--open_comms == 0)
		MPI_Finalize();
	return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c)
{
	fprintf(stderr, "cudaemu: nccl: rank %d of %d aborts\n", c->rank, c->size);
	return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t c,
			   cudaStream_t stream)
{
	size_t bytes = count * size_of(type);
	int size = c->size;
	return gather(c, stream, in, bytes, [=](const char *all) { add(out, all, bytes, size, count, type); }, out);
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t c, cudaStream_t stream)
{
	size_t bytes = count * size_of(type), whole = bytes * size_t(c->size);
	return gather(c, stream, in, bytes, [=](const char *all) { memcpy(out, all, whole); }, out);
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t c,
			       cudaStream_t stream)
{
	size_t part = count * size_of(type), bytes = part * size_t(c->size);
	int size = c->size, rank = c->rank;
	return gather(c, stream, in, bytes, [=](const char *all) { add(out, all + part * size_t(rank), bytes, size, count, type); },
		      out);
}
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t c,
			   cudaStream_t stream)
{
	size_t bytes = count * size_of(type);
	return gather(c, stream, in, bytes, [=](const char *all) { memcpy(out, all + bytes * size_t(root), bytes); }, out);
}

ncclResult_t ncclGroupStart(void)
{
	group = std::make_shared<exchange>();
	return ncclSuccess;
}
ncclResult_t ncclSend(const void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	return join(true, at, count, type, peer, c, stream);
}
ncclResult_t ncclRecv(void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
	return join(false, at, count, type, peer, c, stream);
}
ncclResult_t ncclGroupEnd(void)
{
	auto g = group;
	group = nullptr;
	if (g->list.empty())
		return ncclSuccess;
	ncclComm_t c = g->comm;
	ncclResult_t rc = begin(c, g->list[0].at, g->list[0].at);
	if (c->error)
		return rc;
	uint64_t turn = c->called++;
	emu_enqueue_once(g->stream, [=] {
		int done = 0;
		if (c->done != turn || silent)
			return false;
		if (g->requests.empty()) {
			g->requests.resize(g->list.size());
			for (size_t i = 0; i < g->list.size(); i++) {
				transfer &t = g->list[i];
				t.host.resize(t.bytes);
				if (t.send)
					memcpy(t.host.data(), t.at, t.bytes);
				(t.send ? MPI_Isend(t.host.data(), int(t.bytes), MPI_BYTE, t.peer, TAG, c->mpi, &g->requests[i])
					: MPI_Irecv(t.host.data(), int(t.bytes), MPI_BYTE, t.peer, TAG, c->mpi, &g->requests[i]));
			}
		}
		MPI_Testall(int(g->requests.size()), g->requests.data(), &done, MPI_STATUSES_IGNORE);
		c->done += done != 0;
		for (size_t i = 0; done && i < g->list.size(); i++)
			if (!g->list[i].send)
				memcpy(g->list[i].at, g->list[i].host.data(), g->list[i].bytes);
		return done != 0;
	});
	return rc;
}
}

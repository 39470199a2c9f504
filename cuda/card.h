/* card.h: what the files of the CUDA backend share: the state of one opened card. Used inside this folder only. */
#ifndef MTRAIN_CUDA_CARD_H
#define MTRAIN_CUDA_CARD_H

#include <cuda_runtime_api.h>

#include "attention_pick.h"
#include "dev/backend.h"
#include "gemm.h"
#include "graphs.h"
#include "kernels.h"

/* A call of the runtime that must succeed. */
#define CALL(call)                                                                                         \
	do {                                                                                               \
		cudaError_t call_error = (call);                                                           \
		if (call_error != cudaSuccess)                                                             \
			die(CODE_MACHINE, "%s:%d: %s: %s", __FILE__, __LINE__, #call, cudaGetErrorString(call_error)); \
	} while (0)

/* Memory that was taken: what the runtime gave, and the page-aligned part of it that is used. */
struct allocation {
	void *given, *used;
	size_t bytes;
	struct allocation *next;
};

enum { MARKS = 256, POSTS = 256, STAGES = 64, STAGE_BYTES = 64 << 10 };

/* One queue. Events are used in turn; one that has been used again stands for a later point of the same stream, which
 * holds whoever waits no shorter. */
struct stream {
	cudaStream_t stream;
	cudaEvent_t marks[MARKS];
	uint64_t marked; /* marks made so far; mark n is event n % MARKS */

	/* Host-driven work, oldest first: entries done … posted − 1. Entry n may start when its event has happened, and the
	 * stream goes on behind it when *flag ≥ n + 1. */
	struct {
		struct work *work;
		cudaEvent_t start;
	} posts[POSTS];
	uint64_t posted, done;
	volatile uint32_t *flag; /* in pinned memory */
};

/* Pinned room for one small copy. A read has `to`: it is filled in when the copy has happened. */
struct stage {
	unsigned char *room;
	cudaEvent_t copied;
	void *to;
	size_t bytes;
	bool used;
};

struct card {
	struct stream streams[QUEUES];
	struct stage stages[STAGES];
	int stage; /* the next to use */
	unsigned char *stage_memory;
	uint32_t *flags;
	bool polling;
	bool rehearsing; /* host-driven work is brought to its end where it is posted */

	struct kernel_place place;
	struct gemm *gemm;
	struct graphs *graphs; /* NULL: off */
	struct attention_pick *attention;
	struct allocation *allocations, *pinned; /* of the card; of the host */
	int number; /* of the card on this machine */
	int major, minor;
	char name[64];
};

static inline struct card *card_of(const struct device *dev)
{
	return dev->impl;
}

/* memory.c */
void *card_take(struct device *dev, size_t bytes);
void card_give_back(struct device *dev, void *memory);
void *card_take_host(struct device *dev, size_t bytes);
void card_give_back_host(struct device *dev, void *memory);
bool card_pinned(const struct card *c, const void *memory); /* whether it lies in what card_take_host gave */
void card_give_back_all(struct device *dev);

/* queue.c */
void card_open_queues(struct card *c);
void card_close_queues(struct card *c);
cudaStream_t card_stream(struct card *c, enum queue q); /* to queue something on, behind what is kept for a graph */
void card_poll(struct device *dev); /* moves host-driven work forward; cheap when there is none */
struct mark card_mark(struct device *dev, enum queue q);
void card_wait(struct device *dev, enum queue q, struct mark m);
void card_finish(struct device *dev, struct mark m);
void card_post(struct device *dev, enum queue q, struct work *w);
void card_write(struct device *dev, enum queue q, void *to, const void *from, size_t bytes);
void card_read(struct device *dev, enum queue q, void *to, const void *from, size_t bytes);
void card_copy(struct device *dev, enum queue q, void *to, const void *from, size_t bytes);
void card_zero(struct device *dev, enum queue q, void *to, size_t bytes);

#endif

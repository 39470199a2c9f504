/* hardware.h: what the planner knows of a device, a node and a network, and how long things take on them.
 *
 * A hardware file is INI: `key = number, mark: source`, where the mark is datasheet, measured or assumed; a number without
 * one counts as assumed by whoever wrote the file. `base = NAME` in [hardware] takes everything from another one first. The
 * files of data/hardware/ are built in (builtin.h); data/hardware/README.md says what each key means. `mtrain calibrate`
 * writes such a file, with measured rates, which then count instead of the formulas.
 *
 * A matrix product is cut into tiles that the device's units compute in waves: what the last wave does not fill, the
 * beginning and end of each tile (`gemm_depth`) and small tiles are lost, and it takes at least the time of its bytes. Attention
 * has a curve of its own over the sequence. All other ops are bound by memory. A collective takes its bytes over the narrowest
 * link of its ring or tree, by how its group lies in nodes, and a floor. What the network's cards give is shared by all
 * groups of a node, which talk at the same time.
 *
 * Plain data and pure functions of it; all times are in seconds. Used by the planner, the ledger's readers and calibrate. */
#ifndef MTRAIN_DEV_COST_HARDWARE_H
#define MTRAIN_DEV_COST_HARDWARE_H

#include <stdio.h>

#include "base/error.h"
#include "dev/op_cost.h"

enum hardware_mark { MARK_ASSUMED, MARK_DATASHEET, MARK_MEASURED };

struct hardware_number {
	double value;
	enum hardware_mark mark;
	char source[160];
};

enum { HARDWARE_POINTS = 24 };

/* Rate over the logarithm of size, straight between points, flat outside. */
struct hardware_curve {
	int count;
	double size[HARDWARE_POINTS], rate[HARDWARE_POINTS];
};

/* A link that devices talk over. */
struct hardware_link {
	struct hardware_number gbps;       /* 10⁹ bytes a second, one way: inside a node of each device, between nodes of each card */
	struct hardware_number latency_us; /* of one message */
	struct hardware_number efficiency; /* bus bandwidth of large collectives, of gbps */
	struct hardware_number floor_us;   /* a collective's time however small it is */
	struct hardware_number half_mb;    /* bytes at which a collective reaches half of its bandwidth */
	struct hardware_number pair;       /* bandwidth of one send, of gbps */
};

struct hardware {
	char name[64];
	bool cpu; /* ranks run on the CPU backend, whose workspace is known */
	/* device */
	struct hardware_number peak_fp16_tflops, peak_bf16_tflops, peak_fp32_tflops, peak_fp8_tflops, memory_gib, memory_gbps;
	struct hardware_number units;           /* tiles of a product that are computed at once; 0: no such quantisation */
	struct hardware_number gemm_efficiency; /* of a large product, of the peak */
	struct hardware_number gemm_depth;      /* steps of k that a tile's beginning and end take as long as */
	struct hardware_number attention_forward, attention_backward; /* of the peak, for long sequences and heads of 128 */
	struct hardware_number attention_length; /* tokens at which half of that is reached */
	struct hardware_number memory_efficiency; /* of memory_gbps, in ops bound by it */
	struct hardware_number kernel_us, launch_us; /* device's and host's time for any op, beside its work */
	struct hardware_number context_gib, library_gib, group_gib; /* taken by driver; another trainer's libraries; each group of ranks */
	struct hardware_number cudnn_attention; /* 1: cuDNN's may take the place of mtrain's (cuda/attention_pick.h), and has its workspace */
	struct hardware_number overlap_slowdown; /* computing beside communication takes so many times as long */
	/* node, network */
	struct hardware_number devices_per_node, nics_per_node;
	struct hardware_link node, network;
	/* measured rates, where there are any: of products over FLOPs, in 10¹² a second; of ops over bytes, in 10⁹ a second, of
	 * attention over FLOPs */
	struct hardware_curve gemm[3];        /* fp16, bf16, fp32 */
	struct hardware_curve op[3][OP_COUNT];
};

/* Every number as where a file does not give it; those that a file must give are 0. */
void hardware_init(struct hardware *h, const char *name);

/* A built-in name, or a file. Fails: CODE_USAGE: no such name (with the nearest) or file, a line that is wrong, a key that
 * must be there and is not. */
bool hardware_load(struct hardware *h, const char *name, struct error *e);

/* The same from text[bytes]; `path` is for messages. */
bool hardware_parse(struct hardware *h, const char *path, const char *text, size_t bytes, struct error *e);

/* Calls f for each number, as "device.memory_gbps". */
void hardware_each(const struct hardware *h, void (*f)(void *context, const char *key, const struct hardware_number *n),
		   void *context);

const char *hardware_mark_name(enum hardware_mark mark);

/* Writes a file that hardware_load reads. */
void hardware_write(const struct hardware *h, FILE *out);

/* Of a curve at a size; 0: the curve is empty. */
double hardware_rate(const struct hardware_curve *c, double size);

/* FLOP/s of the compute type by the datasheet; 0: the device has no such type. */
double hardware_peak(const struct hardware *h, enum dtype dtype);

/* Which of the three types of the curves a compute type counts as. */
int hardware_type(enum dtype dtype);

/* `count` products of [m, k] and [k, n] of one type in one call. */
double hardware_gemm(const struct hardware *h, enum dtype t, int64_t count, int64_t m, int64_t n, int64_t k);

/* Causal attention that keeps no scores: of `flops` as op_cost.h counts them. */
double hardware_attention(const struct hardware *h, enum dtype t, double flops, int64_t head_size, int64_t sequence, bool backward);

/* An op that moves so many bytes through memory. */
double hardware_stream(const struct hardware *h, double bytes);

/* The host's time to queue an op. */
double hardware_launch(const struct hardware *h);

/* Where the ranks of a group are: in_node of them in each node (the group's size where it lies in one), beside groups_in_node
 * such groups that share the node's network cards. */
struct hardware_group {
	int size, in_node, groups_in_node;
};

/* In the order of comm.h's enum comm_call, of which the first four are collectives. */
enum hardware_move { HARDWARE_ALL_REDUCE, HARDWARE_ALL_GATHER, HARDWARE_REDUCE_SCATTER, HARDWARE_BROADCAST };

/* bytes as comm_count counts them: of all that is gathered or reduced. */
double hardware_collective(const struct hardware *h, enum hardware_move move, struct hardware_group g, double bytes);

/* One message between two devices, while all devices of the node send one. */
double hardware_exchange(const struct hardware *h, bool same_node, double bytes);

#endif

/* Hardware and stack files, and the times that follow from them: never faster than the datasheet, never less for more work, the
 * limits of each formula, a published layer, and what is said of a bad file. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "dev/cost/builtin.h"
#include "dev/cost/times.h"

_Static_assert((int)HARDWARE_ALL_REDUCE == COMM_ALL_REDUCE && (int)HARDWARE_ALL_GATHER == COMM_ALL_GATHER &&
	       (int)HARDWARE_REDUCE_SCATTER == COMM_REDUCE_SCATTER && (int)HARDWARE_BROADCAST == COMM_BROADCAST,
	       "times_collective hands a record's call on");

static struct hardware load(const char *name)
{
	struct hardware h;
	struct error e = {0};
	if (!hardware_load(&h, name, &e))
		fail_msg("%s", e.text);
	return h;
}

static struct stack load_stack(const char *name)
{
	struct stack s;
	struct error e = {0};
	if (!stack_load(&s, name, &e))
		fail_msg("%s", e.text);
	return s;
}

static void sourced(void *context, const char *key, const struct hardware_number *n)
{
	if (n->source[0] == '\0')
		fail_msg("%s: %s has no source", (const char *)context, key);
}

static void test_built_in(void **state)
{
	int hardware = 0, stacks = 0;
	for (const struct builtin *b = builtin_files; b->name; b++) {
		if (strcmp(b->folder, "stack") == 0) {
			struct stack s = load_stack(b->name);
			assert_string_equal(s.name, b->name);
			bool fitted = s.product_time != 1 || s.memory_time != 1 || s.communication_time != 1 || s.op_us != 0 ||
				      s.overhead_gib >= 0;
			if (fitted && s.fit[0] == '\0')
				fail_msg("%s: does not say which rows it was fitted on", s.name);
			stacks++;
			continue;
		}
		struct hardware h = load(b->name);
		assert_string_equal(h.name, b->name);
		hardware_each(&h, sourced, h.name);
		hardware++;
	}
	assert_true(hardware >= 12 && stacks >= 1);
}

/* At least as fast as nothing can be: the peak, and the memory. */
static void test_product_floors(void **state)
{
	static const int64_t sizes[] = {1, 64, 100, 512, 1000, 4096, 12288, 51200};
	enum { SIZES = sizeof sizes / sizeof *sizes };
	static const char *const names[] = {"a100-80gb", "h100-80gb", "b200-180gb"};
	for (int i = 0; i < 3; i++) {
		struct hardware h = load(names[i]);
		double peak = hardware_peak(&h, F16), memory = h.memory_gbps.value * 1e9;
		for (int x = 0; x < SIZES * SIZES * SIZES; x++) {
			double m = (double)sizes[x % SIZES], n = (double)sizes[x / SIZES % SIZES], k = (double)sizes[x / SIZES / SIZES];
			double seconds = hardware_gemm(&h, F16, 1, (int64_t)m, (int64_t)n, (int64_t)k);
			assert_true(seconds >= 2 * m * n * k / peak);
			assert_true(seconds >= 2 * (m * k + n * k + m * n) / memory);
		}
		double large = hardware_gemm(&h, F16, 1, 32768, 32768, 32768);
		double share = 2 * 32768.0 * 32768 * 32768 / large / peak;
		assert_true(share > 0.95 * h.gemm_efficiency.value && share <= h.gemm_efficiency.value);
	}
}

static void test_product_monotone(void **state)
{
	struct hardware h = load("a100-80gb");
	double last[3] = {0};
	for (int64_t x = 8; x < 20000; x += (1 + x / 56) * 8) {
		double now[3] = {hardware_gemm(&h, F16, 1, x, 3072, 2048), hardware_gemm(&h, F16, 1, 3072, x, 2048),
				 hardware_gemm(&h, F16, 1, 3072, 2048, x)};
		for (int i = 0; i < 3; i++) {
			assert_true(now[i] >= last[i]);
			last[i] = now[i];
		}
		assert_true(now[0] == hardware_gemm(&h, F16, 1, 3072, x, 2048)); /* m and n play one part */
	}
	assert_true(hardware_gemm(&h, F16, 8, 512, 512, 64) > hardware_gemm(&h, F16, 4, 512, 512, 64));
	assert_true(hardware_gemm(&h, F16, 8, 512, 512, 64) < 8 * hardware_gemm(&h, F16, 1, 512, 512, 64));
}

/* 108 units: 108 tiles of 128 × 256 are one wave. A tile more begins another. */
static void test_quantisation(void **state)
{
	struct hardware h = load("a100-80gb");
	double full = hardware_gemm(&h, F16, 1, 12 * 128, 9 * 256, 8192);
	double part = hardware_gemm(&h, F16, 1, 12 * 128, 8 * 256, 8192);
	double more = hardware_gemm(&h, F16, 1, 12 * 128, 9 * 256 + 8, 8192);
	assert_true(full == part);
	assert_true(more > 1.1 * full);
	h.units.value = 0;
	assert_true(hardware_gemm(&h, F16, 1, 12 * 128, 8 * 256, 8192) < hardware_gemm(&h, F16, 1, 12 * 128, 9 * 256, 8192));
}

/* Rows that do not begin at 16 bytes keep a product off the tensor cores. */
static void test_alignment(void **state)
{
	struct hardware h = load("a100-80gb");
	double aligned = hardware_gemm(&h, F16, 32, 2048, 2048, 112), odd = hardware_gemm(&h, F16, 32, 2048, 2048, 108);
	assert_true(odd > 3 * aligned);
	assert_true(odd >= 2.0 * 32 * 2048 * 2048 * 108 / (h.peak_fp32_tflops.value * 1e12));
	assert_true(hardware_gemm(&h, F16, 32, 2048, 108, 2048) == odd);
	assert_true(hardware_gemm(&h, F32, 1, 2048, 2048, 108) <= hardware_gemm(&h, F32, 1, 2048, 2048, 112));
}

static void test_attention_and_memory(void **state)
{
	struct hardware h = load("h100-80gb");
	double peak = hardware_peak(&h, BF16), flops = 1e12;
	double forward = hardware_attention(&h, BF16, flops, 128, 8192, false);
	assert_true(flops / forward < peak * h.attention_forward.value);
	assert_true(hardware_attention(&h, BF16, flops, 128, 8192, true) > forward);
	assert_true(hardware_attention(&h, BF16, flops, 64, 8192, false) > forward);
	assert_true(hardware_attention(&h, BF16, flops, 128, 512, false) > forward);
	assert_true(hardware_attention(&h, BF16, 2 * flops, 128, 8192, false) > forward);
	assert_true(hardware_stream(&h, 0) == h.kernel_us.value * 1e-6);
	assert_true(1e10 / hardware_stream(&h, 1e10) < h.memory_gbps.value * 1e9);
	assert_true(hardware_launch(&h) > 0);
}

static double bus(const struct hardware *h, enum hardware_move move, struct hardware_group g, double bytes)
{
	return bytes * (g.size - 1) / g.size * (move == HARDWARE_ALL_REDUCE ? 2 : 1) / hardware_collective(h, move, g, bytes);
}

static void test_collectives(void **state)
{
	struct hardware h = load("selene");
	struct hardware_group node = {8, 8, 1}, two = {16, 8, 1}, data = {32, 1, 8};
	for (int move = HARDWARE_ALL_REDUCE; move <= HARDWARE_BROADCAST; move++) {
		double last = 0;
		assert_true(hardware_collective(&h, (enum hardware_move)move, (struct hardware_group){1, 1, 8}, 1e9) == 0);
		for (double bytes = 0; bytes < 1e10; bytes = bytes * 1.5 + 1000) {
			double inside = hardware_collective(&h, (enum hardware_move)move, node, bytes);
			double apart = hardware_collective(&h, (enum hardware_move)move, two, bytes);
			double shared = hardware_collective(&h, (enum hardware_move)move, data, bytes);
			assert_true(inside > last && apart > inside && shared > apart);
			last = inside;
		}
		for (int nodes = 2; nodes < 300; nodes++)
			assert_true(hardware_collective(&h, (enum hardware_move)move, (struct hardware_group){nodes + 1, 1, 8}, 1e8) >=
				    hardware_collective(&h, (enum hardware_move)move, (struct hardware_group){nodes, 1, 8}, 1e8));
	}
	/* Large ones reach what was measured on such machines: 232 GB/s in a node, 192 on all cards, 24 on one. */
	assert_true(fabs(bus(&h, HARDWARE_ALL_REDUCE, node, 8e9) / 232e9 - 1) < 0.02);
	assert_true(fabs(bus(&h, HARDWARE_ALL_REDUCE, (struct hardware_group){64, 8, 1}, 8e9) / 192e9 - 1) < 0.03);
	assert_true(fabs(bus(&h, HARDWARE_ALL_REDUCE, (struct hardware_group){8, 1, 8}, 8e9) / 24e9 - 1) < 0.03);
	/* A small one is its floor; a tree keeps it from growing with the nodes. */
	assert_true(hardware_collective(&h, HARDWARE_ALL_REDUCE, node, 8) < 60e-6);
	assert_true(hardware_collective(&h, HARDWARE_ALL_REDUCE, (struct hardware_group){256, 1, 8}, 8) < 1e-3);
	/* Half of the cards: half of the rate for all groups of a node. */
	struct hardware half = load("vtrain");
	assert_true(fabs(bus(&half, HARDWARE_ALL_REDUCE, (struct hardware_group){8, 1, 8}, 8e9) /
			 bus(&h, HARDWARE_ALL_REDUCE, (struct hardware_group){8, 1, 8}, 8e9) - 0.5) < 0.05);
	assert_true(hardware_exchange(&h, true, 1e8) < hardware_exchange(&h, false, 1e8));
	assert_true(hardware_exchange(&half, false, 1e8) > hardware_exchange(&h, false, 1e8));
}

/* One layer of the 22B model (Korthikanti et al. 2022, table 4): sequence 2048, 6144 wide, 64 heads, micro-batch 4, 8 tensor ranks, without
 * sequence parallelism: forward 7.7 ms, backward 11.9 ms. The products, the unfused attention, two sums, and the bytes of
 * norms (2 and 4 passes over an activation), dropout with residual (3.5 and 2.5) and GELU (2 and 3). */
static void test_published_layer(void **state)
{
	struct hardware h = load("selene");
	struct stack s = load_stack("mtrain");
	const int64_t T = 2048, C = 6144, H = 64, tp = 8, N = 4 * T, F = 4 * C / tp;
	double wide = 2.0 * (double)(N * C), inner = 2.0 * (double)(N * F);
	double sums = 2 * hardware_collective(&h, HARDWARE_ALL_REDUCE, (struct hardware_group){8, 8, 1}, wide);
	double forward = hardware_gemm(&h, F16, 1, N, 3 * C / tp, C) + hardware_gemm(&h, F16, 1, N, C, C / tp) +
			 hardware_gemm(&h, F16, 1, N, F, C) + hardware_gemm(&h, F16, 1, N, C, F) +
			 times_unfused(&h, &s, F16, T, 4 * H / tp, C / H, false) + 2 * hardware_stream(&h, 2 * wide) +
			 2 * hardware_stream(&h, 3.5 * wide) + hardware_stream(&h, 2 * inner) + sums;
	double backward = hardware_gemm(&h, F16, 1, N, C, 3 * C / tp) + hardware_gemm(&h, F16, 1, 3 * C / tp, C, N) +
			  hardware_gemm(&h, F16, 1, N, C / tp, C) + hardware_gemm(&h, F16, 1, C / tp, C, N) +
			  hardware_gemm(&h, F16, 1, N, C, F) * 2 + hardware_gemm(&h, F16, 1, F, C, N) * 2 +
			  times_unfused(&h, &s, F16, T, 4 * H / tp, C / H, true) + 2 * hardware_stream(&h, 4 * wide) +
			  2 * hardware_stream(&h, 2.5 * wide) + hardware_stream(&h, 3 * inner) + sums;
	if (fabs(forward / 7.7e-3 - 1) > 0.05 || fabs(backward / 11.9e-3 - 1) > 0.05)
		fail_msg("forward %.2f ms, published 7.7; backward %.2f ms, published 11.9", 1e3 * forward, 1e3 * backward);
}

static char folder[] = "/tmp/mtrain-hardware-XXXXXX";

/* What is said of a file with this text. */
static const char *said(const char *text, bool stack)
{
	static struct error e;
	struct hardware h;
	struct stack s;
	char path[64];
	snprintf(path, sizeof path, "%s/f.ini", folder);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	e = (struct error){0};
	bool good = stack ? stack_load(&s, path, &e) : hardware_load(&h, path, &e);
	unlink(path);
	if (good)
		return "";
	assert_int_equal(e.code, CODE_USAGE);
	return e.text;
}

static void test_bad_files(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"[hardware]\nbase = a100-80gb\n[device]\nmemory_gpbs = 3\n",
		 "f.ini:4: unknown key 'memory_gpbs' in [device]; did you mean 'memory_gbps'?"},
		{"[hardware]\nbase = a100-80gb\n[devise]\nunits = 3\n", "f.ini:4: unknown section [devise]: there are [hardware], [device], [node], [network] and [rates.TYPE]"},
		{"[hardware]\nbase = a100-80gb\n[device]\nunits = many\n", "f.ini:4: units = many: must be a whole number"},
		{"[hardware]\nbase = a100-80gb\n[device]\nmemory_gbps = -1\n", "f.ini:4: memory_gbps = -1: must be a number from 1e-06 to 1e+12"},
		{"[hardware]\nbase = a100-80gb\n[device]\nmemory_gbps = nan\n", "f.ini:4: memory_gbps = nan: must be a number"},
		{"[hardware]\nbase = a100-80gb\n[device]\nmemory_gbps = 1, guessed: at night\n", "what follows the comma must be"},
		{"[hardware]\nbase = a100-80gb\n[device]\ngemm_efficiency = 1.5\n", "f.ini:4: gemm_efficiency = 1.5"},
		{"[hardware]\nbase = a100-80gb\n[rates.fp16]\ngemm = 1:2 1:3\n", "f.ini:4: gemm = 1:2 1:3: must be points"},
		{"[hardware]\nbase = a100-80gb\n[rates.fp8]\ngemm = 1:2\n", "rates are of gemm or another op"},
		{"[hardware]\nbackend = tpu\n", "f.ini:2: backend = tpu: must be cuda or cpu"},
		{"[hardware]\nvendor = x\n", "f.ini:2: unknown key 'vendor'"},
		{"[device]\nunits = 8\n", "peak_fp16_tflops is not given, and has no default"},
		{"[hardware]\nbase = a100-80gb\n[device]\nmemory_gbps = 1e-310\n", "f.ini:4: memory_gbps = 1e-310: must be a number from 1e-06 to 1e+12"},
		{"[hardware]\nbase = a100-80gb\n[device]\npeak_bf16_tflops = 1e-310\n", "must be a number from 0 to 1e+12, and 0 where it is below 1e-06"},
		{"[hardware]\nbase = a100-80gb\n[device]\nunits = 1e-320\n", "f.ini:4: units = 1e-320: must be a whole number from 0 to 100000"},
		{"[hardware]\nbase = a100-80gb\n[device]\nunits = 10.5\n", "f.ini:4: units = 10.5: must be a whole number from 0 to 100000"},
		{"[hardware]\nbase = a100-80gb\n[node]\ndevices_per_node = 2.5\n", "f.ini:4: devices_per_node = 2.5: must be a whole number from 1 to 1024"},
		{"[hardware]\nbase = a100-80gb\n[device]\nmemory_gib = 1e300\n", "f.ini:4: memory_gib = 1e300: must be a number from 1e-06 to 1000000"},
		{"[hardware]\nbase = a100-80gb\n[device]\ngroup_gib = 1e30\n", "f.ini:4: group_gib = 1e30: must be a number from 0 to 1000000"},
		{"[hardware]\nbase = a100-80gb\n[rates.fp16]\ngemm = 1:1e-320\n",
		 "f.ini:4: gemm = 1:1e-320: must be points `size:rate …`, at most 24, sizes ascending and from 0.001 to 1e+30, rates from 1e-09 to 1000000000"},
		{"[hardware]\nbase = a100-80gb\n[device]\nunits = 8\n[node]\n[device]\nunits = 9\n",
		 "f.ini:7: device.units is set a second time; the first is on line 4"},
		{"[rates.fp16]\ngemm = 1:2\ngemm = 1:3\n", "f.ini:3: rates.fp16.gemm is set a second time; the first is on line 2"},
		{"[hardware]\nname = mine\nbase = a100-80gb\n", "f.ini:3: base = a100-80gb: must be the first setting of the file"},
		{"[device]\nunits = 8\n[hardware]\nbase = a100-80gb\n", "f.ini:4: base = a100-80gb: must be the first setting of the file"},
		{"units\n", "f.ini:1: neither [section] nor key = value"},
		{"[hardware]\nbase = a100-80bg\n", "did you mean a100-80gb?"},
	};
	static const struct {
		const char *text, *says;
	} bad_stack[] = {
		{"[switch]\nunfused = true\n", "f.ini:2: unknown key 'unfused' in [switch]"},
		{"[switch]\nno_overlap = maybe\n", "f.ini:2: no_overlap = maybe: must be true or false"},
		{"[fitted]\nproduct_time = -1\n", "f.ini:2: product_time = -1: must be a number from 0.001 to 1000"},
		{"[fitted]\noverhead_gib = 1e300\n", "f.ini:2: overhead_gib = 1e300: must be a number from 0 to 1000000"},
		{"[switch]\nno_overlap = true\nno_overlap = false\n", "f.ini:3: switch.no_overlap is set a second time; the first is on line 2"},
		{"[switches]\nno_overlap = true\n", "f.ini:2: unknown section [switches]: there are [stack], [switch], [fitted] and [fit]"},
		{"[fitted]\nproduct_time = 1\nmemory_time = 1\ncommunication_time = 1\nop_us = 1\noverhead_gib = 1\n",
		 "f.ini:6: overhead_gib: a stack fits at most 4 constants"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (!strstr(said(bad[i].text, false), bad[i].says))
			fail_msg("%s\nis answered with: %s", bad[i].text, said(bad[i].text, false));
	for (size_t i = 0; i < sizeof bad_stack / sizeof *bad_stack; i++)
		if (!strstr(said(bad_stack[i].text, true), bad_stack[i].says))
			fail_msg("%s\nis answered with: %s", bad_stack[i].text, said(bad_stack[i].text, true));

	struct hardware h;
	struct stack s;
	struct error e = {0};
	assert_false(hardware_load(&h, "a100-80bg", &e));
	assert_non_null(strstr(e.text, "did you mean a100-80gb?"));
	assert_false(stack_load(&s, "nemo", &e));
	assert_int_equal(e.code, CODE_USAGE);
}

/* A file that is its own base ends. */
static void test_circle(void **state)
{
	char path[64], text[128];
	struct hardware h;
	struct error e = {0};
	snprintf(path, sizeof path, "%s/circle.ini", folder);
	snprintf(text, sizeof text, "[hardware]\nbase = %s\n", path);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	assert_false(hardware_load(&h, path, &e));
	assert_non_null(strstr(e.text, "each other's base"));
	unlink(path);
}

struct numbers {
	int count;
	double value[64];
	char key[64][64];
};

static void gather(void *context, const char *key, const struct hardware_number *n)
{
	struct numbers *all = context;
	assert_true(all->count < 64 && strlen(key) < 64);
	strcpy(all->key[all->count], key);
	all->value[all->count++] = n->value;
}

static void test_written_and_read(void **state)
{
	struct hardware h = load("jean-zay"), again;
	struct error e = {0};
	char path[64];
	h.gemm[1] = (struct hardware_curve){2, {1e9, 1e12}, {10, 200}};
	h.op[0][OP_norm_forward] = (struct hardware_curve){1, {1e6}, {900}};
	snprintf(path, sizeof path, "%s/written.ini", folder);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	hardware_write(&h, f);
	assert_int_equal(fclose(f), 0);
	if (!hardware_load(&again, path, &e))
		fail_msg("%s", e.text);
	unlink(path);
	struct numbers given = {0}, read = {0};
	hardware_each(&h, gather, &given);
	hardware_each(&again, gather, &read);
	assert_true(given.count == read.count && given.count > 30);
	for (int i = 0; i < given.count; i++) {
		assert_string_equal(given.key[i], read.key[i]);
		assert_true(fabs(given.value[i] - read.value[i]) <= 1e-5 * given.value[i]);
	}
	assert_string_equal(again.name, "jean-zay");
	assert_true(again.network.efficiency.value == h.network.efficiency.value);
	assert_int_equal(again.network.efficiency.mark, MARK_MEASURED);
	assert_string_equal(again.network.efficiency.source, h.network.efficiency.source);
	assert_true(again.gemm[1].count == 2 && again.op[0][OP_norm_forward].rate[0] == 900);
	/* A measured rate counts instead of the formula; between points it follows the logarithm of the size. */
	assert_true(fabs(hardware_rate(&again.gemm[1], 1e9) - 10) < 1e-9);
	assert_true(fabs(hardware_rate(&again.gemm[1], 1e15) - 200) < 1e-9);
	double middle = hardware_rate(&again.gemm[1], 31622776601.0);
	assert_true(middle > 44 && middle < 45);
	double measured = hardware_gemm(&again, BF16, 1, 1000, 1000, 500);
	assert_true(fabs(measured / (1e9 / 10e12) - 1) < 1e-9);
}

/* What a stack's switches and constants do to times. */
static void count_way(void *context, const char *key, double value)
{
	double *sum = context;
	sum[0]++;
	sum[1] += strcmp(key, "product_time") == 0 ? value : 0;
}

/* What is said of a stack is what differs from mtrain. */
static void test_ways(void **state)
{
	struct stack none = load_stack("mtrain"), s = none;
	double sum[2] = {0};
	stack_each(&none, count_way, sum);
	assert_true(sum[0] == 0);
	s.no_overlap = true;
	s.overhead_gib = 0;
	s.product_time = 1.25;
	stack_each(&s, count_way, sum);
	assert_true(sum[0] == 3 && sum[1] == 1.25);
}

static void test_stack(void **state)
{
	struct hardware h = load("selene");
	struct stack plain = load_stack("mtrain"), other = plain;
	struct record_item gemm = {.kind = RECORD_OP, .what = OP_gemm, .dtype = F16, .m = 4096, .n = 4096, .k = 4096, .cost = {.again = 1}};
	struct record_item norm = {.kind = RECORD_OP, .what = OP_norm_forward, .dtype = F16, .cost = {.bytes = 1e8}};
	struct record_item sum = {.kind = RECORD_COMM, .what = COMM_ALL_REDUCE, .dtype = F32, .cost = {.bytes = 1e8}};
	struct hardware_group g = {8, 8, 1};
	other.whole_recompute = true;
	assert_true(fabs(times_op(&h, &other, &gemm) / times_op(&h, &plain, &gemm) - 1.5) < 1e-9);
	other.product_time = 2;
	assert_true(fabs(times_op(&h, &other, &gemm) / times_op(&h, &plain, &gemm) - 3) < 1e-9);
	other.memory_time = 3;
	assert_true(fabs(times_op(&h, &other, &norm) / times_op(&h, &plain, &norm) - 3) < 1e-9);
	other.communication_time = 4;
	assert_true(fabs(times_collective(&h, &other, &sum, g) / times_collective(&h, &plain, &sum, g) - 4) < 1e-9);
	other = plain;
	other.scatter_gather = true;
	assert_true(times_exchange(&h, &other, false, 8, 1e8) < times_exchange(&h, &plain, false, 8, 1e8));
	assert_true(times_exchange(&h, &other, false, 1, 1e8) == times_exchange(&h, &plain, false, 1, 1e8));
	/* The scores of whole rows cost more than the causal half that is never stored. */
	struct record_item attention = {.kind = RECORD_OP, .what = OP_attention_forward, .dtype = F16, .m = 2048, .n = 32, .k = 128,
					.cost = {.flops = 4.0 * 2048 * 2048 * 128 * 32 / 2}};
	other.unfused_attention = true;
	assert_true(times_op(&h, &other, &attention) > 2 * times_op(&h, &plain, &attention));
	struct record_item update = {.kind = RECORD_OP, .what = OP_adamw, .dtype = F32, .cost = {.bytes = 30e9}};
	other = plain;
	other.unfused_optimizer = true;
	assert_true(fabs(times_op(&h, &other, &update) / times_op(&h, &plain, &update) - 56.0 / 30) < 1e-3);
	other.op_us = 100;
	assert_true(fabs(times_op(&h, &other, &norm) - times_op(&h, &plain, &norm) - 1e-4) < 1e-9);
	assert_true(plain.overhead_gib < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_built_in),
		cmocka_unit_test(test_product_floors),
		cmocka_unit_test(test_product_monotone),
		cmocka_unit_test(test_quantisation),
		cmocka_unit_test(test_alignment),
		cmocka_unit_test(test_attention_and_memory),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_published_layer),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_circle),
		cmocka_unit_test(test_written_and_read),
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_stack),
	};
	if (!mkdtemp(folder))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}

#include "dev/cost/hardware.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/inifile.h"
#include "base/range.h"
#include "base/text.h"
#include "dev/cost/builtin.h"

struct row {
	const char *section, *key;
	size_t offset;       /* of a struct hardware_number */
	const char *range;
	const char *initial; /* NULL: must be given */
	const char *why;     /* of the initial value */
	bool whole;
};

#define ROW(place, name, field) .section = #place, .key = name, .offset = offsetof(struct hardware, field)
#define DEVICE(field) ROW(device, #field, field)
#define LINK(place, field) ROW(place, "link_" #field, place.field)
/* Wide, and so that no time or number of bytes made of them leaves its type. */
#define RATE "[0.000001, 1e12]"
#define SOME "[0, 1000000]"
#define SHARE "[0.000001, 1]"
static const double least = 0.000001; /* that is not 0: a peak of less is none */
static const char curve_size[] = "[0.001, 1e30]", curve_rate[] = "[1e-9, 1e9]";

static const struct row rows[] = {
	{DEVICE(peak_fp16_tflops), RATE, NULL, NULL},
	{DEVICE(peak_bf16_tflops), "[0, 1e12]", NULL, NULL},
	{DEVICE(peak_fp32_tflops), RATE, NULL, NULL},
	{DEVICE(peak_fp8_tflops), "[0, 1e12]", "0", "the device has none"},
	{DEVICE(memory_gib), "[0.000001, 1000000]", NULL, NULL},
	{DEVICE(memory_gbps), RATE, NULL, NULL},
	{DEVICE(units), "[0, 100000]", "0", "products are not quantised", true},
	{DEVICE(gemm_efficiency), SHARE, "0.85", "best products reach 73 to 87% of the peak on A100 to B200"},
	{DEVICE(gemm_depth), SOME, "110", "a tile's beginning and end, seen in products of small k"},
	{DEVICE(attention_forward), SHARE, "0.5", "of the peak for causal attention"},
	{DEVICE(attention_backward), SHARE, "0.4", "of the peak for causal attention"},
	{DEVICE(attention_length), SOME, "300", "short sequences fill few units"},
	{DEVICE(memory_efficiency), SHARE, "0.8", "of the datasheet's bandwidth, as copies reach"},
	{DEVICE(kernel_us), SOME, "2", "start and end of a kernel on the device"},
	{DEVICE(launch_us), SOME, "4", "one launch on the host"},
	{DEVICE(context_gib), SOME, "0.6", "driver and kernels"},
	{DEVICE(library_gib), SOME, "0.1", "workspace of another trainer's libraries; mtrain's own is counted"},
	{DEVICE(group_gib), SOME, "0.15", "buffers of each group of ranks"},
	{DEVICE(cudnn_attention), "[0, 1]", "0", "attention by mtrain's own kernels", true},
	{DEVICE(overlap_slowdown), "[1, 10]", "1.13", "1.1256 measured on A100 (Galvatron)"},
	{ROW(node, "devices_per_node", devices_per_node), "[1, 1024]", "8", "a DGX-class node", true},
	{LINK(node, gbps), RATE, NULL, NULL},
	{LINK(node, latency_us), SOME, "3", "of one message between devices of a node"},
	{LINK(node, efficiency), SHARE, "0.77", "bus bandwidth of a large collective: 232 of 300 GB/s on A100"},
	{LINK(node, floor_us), SOME, "14", "small all-reduce of 8 H100: 13.7 us"},
	{LINK(node, half_mb), SOME, "4", "smaller collectives do not fill the links"},
	{LINK(node, pair), SHARE, "0.8", "of the link for one send"},
	{ROW(network, "nics_per_node", nics_per_node), "[0.001, 1024]", "8", "a DGX-class node"},
	{LINK(network, gbps), RATE, "25", "one 200 Gb/s NIC"},
	{LINK(network, latency_us), SOME, "8", "of one message between nodes, software and all"},
	{LINK(network, efficiency), SHARE, "0.9", "of the NICs for large collectives: 24 of 25 GB/s on one NIC"},
	{LINK(network, floor_us), SOME, "30", "a small collective between nodes"},
	{LINK(network, half_mb), SOME, "4", "smaller collectives do not fill the links"},
	{LINK(network, pair), SHARE, "0.8", "of a NIC for one send"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct hardware_number *number_of(const struct row *r, struct hardware *h)
{
	return (struct hardware_number *)(void *)((char *)h + r->offset);
}

static const struct hardware_number *number_in(const struct row *r, const struct hardware *h)
{
	return (const struct hardware_number *)(const void *)((const char *)h + r->offset);
}

const char *hardware_mark_name(enum hardware_mark mark)
{
	static const char *const names[] = {"assumed", "datasheet", "measured"};
	return names[mark];
}

struct reading {
	struct hardware *h;
	const char *path;
	int depth;
	int settings; /* of this file, up to here */
	bool given[ROWS];
};

static bool load(struct reading *r, const char *name, struct error *e);

static bool wrong(const struct reading *r, const struct inifile_entry *x, struct error *e, const char *right)
{
	return error_set(e, CODE_USAGE, "%s:%d: %s = %s: %s", r->path, x->line, x->key, x->value, right);
}

/* "312, datasheet: of the A100". */
static bool read_number(const struct reading *r, const struct inifile_entry *x, const struct row *row, struct hardware_number *n,
			struct error *e)
{
	char digits[64], words[64];
	const char *comma = strchr(x->value, ',');
	size_t length = comma ? (size_t)(comma - x->value) : strlen(x->value);
	n->value = 0;
	snprintf(digits, sizeof digits, "%.*s", (int)(length < 60 ? length : 60), x->value);
	if (!text_to_number(digits, &n->value) || !range_holds(row->range, n->value) || (n->value != 0 && n->value < least) ||
	    (row->whole && n->value != floor(n->value))) {
		char text[160];
		snprintf(text, sizeof text, "must be a %s %s%s, and may go on with `, measured: source`", row->whole ? "whole number" : "number",
			 range_say(words, sizeof words, row->range), n->value > 0 && n->value < least ? ", and 0 where it is below 1e-06" : "");
		return wrong(r, x, e, text);
	}
	n->mark = MARK_ASSUMED;
	n->source[0] = '\0';
	if (!comma)
		return true;
	const char *mark = comma + 1 + strspn(comma + 1, " ");
	const char *colon = strchr(mark, ':');
	for (int i = MARK_ASSUMED; i <= MARK_MEASURED; i++) {
		const char *word = hardware_mark_name((enum hardware_mark)i);
		if (colon && (size_t)(colon - mark) == strlen(word) && strncmp(mark, word, strlen(word)) == 0) {
			n->mark = (enum hardware_mark)i;
			snprintf(n->source, sizeof n->source, "%s", colon + 1 + strspn(colon + 1, " "));
			return true;
		}
	}
	return wrong(r, x, e, "what follows the comma must be `datasheet: source`, `measured: source` or `assumed: source`");
}

static bool read_curve(const struct reading *r, const struct inifile_entry *x, struct hardware_curve *c, struct error *e)
{
	char *copy = strdup(x->value), *save = NULL;
	bool good = true;
	if (!copy)
		return error_set(e, CODE_MACHINE, "out of memory");
	*c = (struct hardware_curve){0};
	for (char *word = strtok_r(copy, " ", &save); good && word; word = strtok_r(NULL, " ", &save)) {
		char *colon = strchr(word, ':');
		good = colon && c->count < HARDWARE_POINTS;
		if (!good)
			break;
		*colon = '\0';
		good = text_to_number(word, &c->size[c->count]) && text_to_number(colon + 1, &c->rate[c->count]) &&
		       range_holds(curve_size, c->size[c->count]) && range_holds(curve_rate, c->rate[c->count]) &&
		       (c->count == 0 || c->size[c->count] > c->size[c->count - 1]);
		c->count++;
	}
	free(copy);
	char sizes[64], rates[64], text[240];
	snprintf(text, sizeof text, "must be points `size:rate …`, at most %d, sizes ascending and %s, rates %s", HARDWARE_POINTS,
		 range_say(sizes, sizeof sizes, curve_size), range_say(rates, sizeof rates, curve_rate));
	return good && c->count > 0 ? true : wrong(r, x, e, text);
}

static const char *const types[3] = {"fp16", "bf16", "fp32"};

/* [rates.fp16]: gemm or the name of another op. */
static bool read_rates(const struct reading *r, const struct inifile_entry *x, struct error *e)
{
	for (int t = 0; t < 3; t++) {
		if (strcmp(x->section + strlen("rates."), types[t]) != 0)
			continue;
		if (strcmp(x->key, "gemm") == 0)
			return read_curve(r, x, &r->h->gemm[t], e);
		for (int op = 0; op < OP_COUNT; op++)
			if (strcmp(x->key, op_name((enum op_id)op)) == 0)
				return read_curve(r, x, &r->h->op[t][op], e);
	}
	return error_set(e, CODE_USAGE, "%s:%d: [%s] %s: rates are of gemm or another op, in [rates.fp16], [rates.bf16] or "
			 "[rates.fp32]", r->path, x->line, x->section, x->key);
}

static bool unknown(const struct reading *r, const struct inifile_entry *x, struct error *e)
{
	const char *keys[ROWS];
	int count = 0;
	for (int i = 0; i < ROWS; i++)
		if (strcmp(rows[i].section, x->section) == 0)
			keys[count++] = rows[i].key;
	const char *near = count ? text_nearest(x->key, keys, count) : NULL;
	if (count == 0)
		return error_set(e, CODE_USAGE, "%s:%d: unknown section [%s]: there are [hardware], [device], [node], [network] and [rates.TYPE]", r->path,
				 x->line, x->section);
	return error_set(e, CODE_USAGE, "%s:%d: unknown key '%s' in [%s]%s%s%s", r->path, x->line, x->key, x->section,
			 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static bool read_hardware(struct reading *r, const struct inifile_entry *x, struct error *e)
{
	if (strcmp(x->key, "base") == 0 && r->settings > 1)
		return wrong(r, x, e, "must be the first setting of the file: it would take back those before it");
	if (strcmp(x->key, "base") == 0)
		return load(r, x->value, e);
	if (strcmp(x->key, "backend") == 0) {
		r->h->cpu = strcmp(x->value, "cpu") == 0;
		return r->h->cpu || strcmp(x->value, "cuda") == 0 ? true : wrong(r, x, e, "must be cuda or cpu");
	}
	if (strcmp(x->key, "name") != 0)
		return error_set(e, CODE_USAGE, "%s:%d: unknown key '%s': [hardware] has name, base and backend", r->path, x->line,
				 x->key);
	if (strlen(x->value) >= sizeof r->h->name)
		return wrong(r, x, e, "a name has at most 63 bytes");
	strcpy(r->h->name, x->value);
	return true;
}

static bool entry(void *context, const struct inifile_entry *x, struct error *e)
{
	struct reading *r = context;
	r->settings++;
	if (strcmp(x->section, "hardware") == 0)
		return read_hardware(r, x, e);
	if (strncmp(x->section, "rates.", strlen("rates.")) == 0)
		return read_rates(r, x, e);
	for (int i = 0; i < ROWS; i++)
		if (strcmp(rows[i].section, x->section) == 0 && strcmp(rows[i].key, x->key) == 0) {
			r->given[i] = true;
			return read_number(r, x, &rows[i], number_of(&rows[i], r->h), e);
		}
	return unknown(r, x, e);
}

static bool load(struct reading *r, const char *name, struct error *e)
{
	const char *text, *path = r->path;
	size_t bytes;
	char *read;

	if (++r->depth > 8)
		return error_set(e, CODE_USAGE, "%s: hardware files that are each other's base", name);
	if (!builtin_read("hardware", name, &text, &bytes, &read, e))
		return false;
	int settings = r->settings;
	r->path = name;
	r->settings = 0;
	bool good = inifile_read(name, text, bytes, entry, r, e);
	r->path = path;
	r->settings = settings;
	free(read);
	return good;
}

void hardware_init(struct hardware *h, const char *name)
{
	*h = (struct hardware){0};
	snprintf(h->name, sizeof h->name, "%s", name);
	for (int i = 0; i < ROWS; i++) {
		struct hardware_number *n = number_of(&rows[i], h);
		if (rows[i].initial && text_to_number(rows[i].initial, &n->value))
			snprintf(n->source, sizeof n->source, "%s", rows[i].why);
	}
}

static bool complete(const struct reading *r, struct error *e)
{
	for (int i = 0; i < ROWS; i++)
		if (!rows[i].initial && !r->given[i])
			return error_set(e, CODE_USAGE, "%s: [%s] %s is not given, and has no default", r->path, rows[i].section,
					 rows[i].key);
	return true;
}

bool hardware_load(struct hardware *h, const char *name, struct error *e)
{
	struct reading r = {.h = h, .path = name};
	hardware_init(h, name);
	return load(&r, name, e) && complete(&r, e);
}

bool hardware_parse(struct hardware *h, const char *path, const char *text, size_t bytes, struct error *e)
{
	struct reading r = {.h = h, .path = path};
	hardware_init(h, path);
	return inifile_read(path, text, bytes, entry, &r, e) && complete(&r, e);
}

void hardware_each(const struct hardware *h, void (*f)(void *context, const char *key, const struct hardware_number *n),
		   void *context)
{
	char key[64];
	for (int i = 0; i < ROWS; i++) {
		snprintf(key, sizeof key, "%s.%s", rows[i].section, rows[i].key);
		f(context, key, number_in(&rows[i], h));
	}
}

static void write_curve(FILE *out, const char *key, const struct hardware_curve *c)
{
	if (c->count == 0)
		return;
	fprintf(out, "%s =", key);
	for (int i = 0; i < c->count; i++)
		fprintf(out, " %.4g:%.4g", c->size[i], c->rate[i]);
	fprintf(out, "\n");
}

void hardware_write(const struct hardware *h, FILE *out)
{
	const char *section = "";
	fprintf(out, "[hardware]\nname = %s\nbackend = %s\n", h->name, h->cpu ? "cpu" : "cuda");
	for (int i = 0; i < ROWS; i++) {
		const struct hardware_number *n = number_in(&rows[i], h);
		if (strcmp(section, rows[i].section) != 0)
			fprintf(out, "\n[%s]\n", rows[i].section);
		section = rows[i].section;
		fprintf(out, "%s = %.6g, %s: %s\n", rows[i].key, n->value, hardware_mark_name(n->mark), n->source);
	}
	for (int t = 0; t < 3; t++) {
		fprintf(out, "\n[rates.%s]\n", types[t]);
		write_curve(out, "gemm", &h->gemm[t]);
		for (int op = 0; op < OP_COUNT; op++)
			write_curve(out, op_name((enum op_id)op), &h->op[t][op]);
	}
}

double hardware_rate(const struct hardware_curve *c, double size)
{
	if (c->count == 0)
		return 0;
	if (size <= c->size[0])
		return c->rate[0];
	for (int i = 1; i < c->count; i++)
		if (size <= c->size[i]) {
			double x = log(size / c->size[i - 1]) / log(c->size[i] / c->size[i - 1]);
			return c->rate[i - 1] * pow(c->rate[i] / c->rate[i - 1], x);
		}
	return c->rate[c->count - 1];
}

int hardware_type(enum dtype dtype)
{
	return dtype == F16 ? 0 : dtype == BF16 ? 1 : 2;
}

double hardware_peak(const struct hardware *h, enum dtype dtype)
{
	const struct hardware_number *peaks[3] = {&h->peak_fp16_tflops, &h->peak_bf16_tflops, &h->peak_fp32_tflops};
	return peaks[hardware_type(dtype)]->value * 1e12;
}

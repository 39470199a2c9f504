#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "commands/commands.h"
#include "commands/options.h"
#include "plan/plan_report.h"
#include "plan/search.h"
#include "plan/timeline.h"

struct values {
	const char *config, *hardware, *stack, *trace;
	struct option_list set;
	int64_t devices;
	bool json, search;
};

static const struct option_row rows[] = {
	{"config", "FILE", OPTION_TEXT, offsetof(struct values, config), true, NULL, "the INI file; [model], [parallel] and [batch] count"},
	{"hardware", "NAME|FILE", OPTION_TEXT, offsetof(struct values, hardware), true, NULL,
	 "a built-in device or cluster (docs/plan.md lists them), or a file, as `mtrain calibrate` writes it"},
	{"stack", "NAME|FILE", OPTION_TEXT, offsetof(struct values, stack), false, NULL, "how another trainer differs (mtrain)"},
	{"devices", "N", OPTION_COUNT, offsetof(struct values, devices), false, "[1, 1048576]",
	 "how many there are; else as many as parallel.data, tensor and pipeline make"},
	{"set", "section.key=value", OPTION_LIST, offsetof(struct values, set), false, NULL,
	 "a setting that wins over the file; may be given often"},
	{"search", NULL, OPTION_FLAG, offsetof(struct values, search), false, NULL,
	 "the best layouts for --devices N, and why the others are not"},
	{"json", NULL, OPTION_FLAG, offsetof(struct values, json), false, NULL, "for programs"},
	{"trace", "FILE", OPTION_TEXT, offsetof(struct values, trace), false, NULL, "the predicted step as a Perfetto trace"},
};

static const struct options options = {
	.usage = "mtrain plan --config FILE --hardware NAME|FILE [--stack NAME|FILE] [--devices N] [--search] [--json] [--trace FILE]",
	.summary = "Says, without any device, whether a run fits, how long a step takes, and why.",
	.rows = rows,
	.count = sizeof rows / sizeof *rows,
};

static bool plan(const struct values *v, struct config *c, struct error *e)
{
	struct hardware *h = malloc(sizeof *h);
	struct stack stack;
	struct plan p = {0};
	struct timeline t;

	check(h);
	bool good = hardware_load(h, v->hardware, e) && stack_load(&stack, v->stack, e);
	if (good) {
		timeline_open(&t);
		good = plan_make(&p, &(struct plan_options){
			.config = c, .hardware = h, .stack = &stack, .devices = v->devices, .memory = c->device.memory,
			.box = v->trace ? timeline_box : NULL, .context = &t,
		}, e);
		struct error ignored;
		good = timeline_close(&t, good ? v->trace : NULL, p.stages, good ? e : &ignored) && good;
	}
	if (good && v->json)
		json_print(plan_report_json(&p), true);
	else if (good)
		plan_report(&p, stdout);
	plan_finish(&p);
	free(h);
	return good;
}

static bool search(const struct values *v, struct config *c, struct error *e)
{
	struct hardware *h = malloc(sizeof *h);
	struct stack stack;
	struct search s = {0};

	check(h);
	bool good = hardware_load(h, v->hardware, e) && stack_load(&stack, v->stack, e) &&
		    search_make(&s, &(struct plan_options){
			    .config = c, .hardware = h, .stack = &stack, .devices = v->devices, .memory = c->device.memory,
		    }, e);
	if (good && v->json)
		json_print(search_json(&s), true);
	else if (good)
		search_report(&s, stdout);
	search_finish(&s);
	free(h);
	return good;
}

int command_plan(int argc, char **argv, struct error *e)
{
	struct values v = {.stack = "mtrain"};
	struct config c = {0};
	bool helped;

	if (!options_read(&options, &v, argc, argv, NULL, NULL, &helped, e))
		return e->code;
	if (helped)
		return CODE_DONE;
	if (v.search && (v.devices == 0 || v.trace)) {
		error_set(e, CODE_USAGE, v.trace ? "--search compares many steps, and --trace shows one: leave one of them out"
						 : "--search needs --devices N: for how many");
		return e->code;
	}
	bool good = config_load(&c, v.config, v.set.texts, v.set.count, e) && (v.search ? search : plan)(&v, &c, e);
	config_finish(&c);
	return good ? CODE_DONE : e->code;
}

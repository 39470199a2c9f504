#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "train/console.h"

enum { ROOM = 400 };

static void append(char line[ROOM], const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(char line[ROOM], const char *format, ...)
{
	size_t n = strlen(line);
	va_list args;
	va_start(args, format);
	vsnprintf(line + n, ROOM - n, format, args);
	va_end(args);
}

static void model(const struct console_summary *s)
{
	const struct model_settings *m = &s->config->model;
	char line[ROOM] = "", text[32];
	append(line, "%s parameters: %lld layers, width %lld, %lld heads", text_si(text, sizeof text, (double)s->parameters),
	       (long long)m->layers, (long long)m->hidden, (long long)m->heads);
	if (m->kv_heads != m->heads)
		append(line, " in %lld groups", (long long)m->kv_heads);
	append(line, ", sequence %lld, vocabulary %lld", (long long)m->sequence, (long long)m->vocab);
	log_info("  model      %s", line);
}

static void batch(const struct console_summary *s)
{
	const struct batch_settings *b = &s->config->batch;
	int64_t micros = b->global / (b->micro * s->mesh->size[AXIS_DATA]);
	char text[32];
	log_info("  batch      %lld samples, %s tokens a step; on each rank %lld micro-batch%s of %lld", (long long)b->global,
		 text_si(text, sizeof text, (double)b->global * (double)s->config->model.sequence), (long long)micros,
		 micros == 1 ? "" : "es", (long long)b->micro);
}

static void mesh(const struct console_summary *s)
{
	const struct setting *schedule = setting_find("parallel", "schedule");
	char line[ROOM] = "", name[SETTING_ROOM];
	char context[32] = "";
	int stages = s->mesh->size[AXIS_PIPELINE];
	if (s->mesh->size[AXIS_CONTEXT] > 1)
		snprintf(context, sizeof context, "context %d x ", s->mesh->size[AXIS_CONTEXT]);
	log_info("  mesh       %d rank%s: data %d x tensor %d x %spipeline %d", mesh_world(s->mesh),
		 mesh_world(s->mesh) == 1 ? "" : "s", s->mesh->size[AXIS_DATA], s->mesh->size[AXIS_TENSOR], context, stages);
	int64_t chunks = s->config->parallel.chunks;
	for (int64_t i = 0; i < stages * chunks && strlen(line) < ROOM - 32; i++)
		append(line, "%s%lld", i == 0 ? "" : i % stages ? ", " : " | ", (long long)s->stage_layers[i]);
	if (stages > 1)
		log_info("  stages     %s layers, %s", line, setting_print(schedule, s->config, name));
}

static void precision(const struct console_summary *s)
{
	const struct precision_settings *p = &s->config->precision;
	char line[ROOM] = "";
	if (p->loss_scale > 0)
		append(line, "loss scale %.6g", p->loss_scale);
	else if (p->compute == F16)
		append(line, "dynamic loss scale from %.6g", p->loss_scale_initial);
	else
		append(line, "no loss scale");
	log_info("  precision  %s, fp32 master weights, %s", dtype_name(p->compute), line);
}

static void memory(const struct console_summary *s)
{
	char line[ROOM] = "", text[32];
	log_info("  memory     %s on rank 0:", text_bytes(text, sizeof text, memory_bytes(s->memory) + s->workspace));
	for (int kind = 0; kind < MEMORY_KINDS; kind++)
		if (s->memory->arena[kind].used > 0)
			append(line, "%s %s, ", memory_name((enum memory_kind)kind),
			       text_bytes(text, sizeof text, s->memory->arena[kind].used));
	log_info("             %sworkspace %s", line, text_bytes(text, sizeof text, s->workspace));
}

static void recompute(const struct console_summary *s)
{
	char name[SETTING_ROOM];
	if (s->config->parallel.recompute != RECOMPUTE_NONE)
		log_info("  recompute  %s: %s", setting_print(setting_find("parallel", "recompute"), s->config, name),
			 s->recomputed);
}

void console_summary(const struct console_summary *s)
{
	const struct config *c = s->config;
	log_info("mtrain: %s, %lld steps, into %s", c->path, (long long)c->run.steps, c->run.dir);
	model(s);
	batch(s);
	mesh(s);
	precision(s);
	log_info("  device     %s", s->device);
	memory(s);
	recompute(s);
}

#include "plan/plan_report.h"

#include <string.h>

#include "base/text.h"

static void head(const struct plan *p, FILE *out)
{
	const struct config *c = p->config;
	char parameters[32], tokens[32];
	fprintf(out, "%s: %s parameters on %d x %s, stack %s\n", c->path, text_si(parameters, sizeof parameters, (double)p->parameters),
		mesh_world(&p->mesh), p->hardware->name, p->stack->name);
	fprintf(out, "  layout     data %d x context %d x tensor %d x pipeline %d, %lld chunk%s, micro-batch %lld, global batch %lld (%s tokens)\n",
		p->mesh.size[AXIS_DATA], p->mesh.size[AXIS_CONTEXT], p->mesh.size[AXIS_TENSOR], p->mesh.size[AXIS_PIPELINE],
		(long long)c->parallel.chunks,
		c->parallel.chunks == 1 ? "" : "s", (long long)c->batch.micro, (long long)c->batch.global,
		text_si(tokens, sizeof tokens, (double)c->batch.global * (double)c->model.sequence));
}

static void memory(const struct plan *p, FILE *out)
{
	const struct plan_stage *s = &p->stage[p->fullest];
	char bytes[32], limit[32];
	fprintf(out, "  memory     %s of %s on the fullest stage, %d of %d: it %s\n", text_bytes(bytes, sizeof bytes, (uint64_t)s->total),
		text_bytes(limit, sizeof limit, (uint64_t)p->memory_limit), p->fullest + 1, p->stages, p->fits ? "fits" : "DOES NOT FIT");
	for (int k = 0; k < MEMORY_KINDS; k++)
		fprintf(out, "    %-14s %10s  %3.0f%%\n", memory_name((enum memory_kind)k),
			text_bytes(bytes, sizeof bytes, (uint64_t)s->ledger.arena[k]), 100 * (double)s->ledger.arena[k] / (double)s->total);
	fprintf(out, "    %-14s %10s  %3.0f%%", "workspace", text_bytes(bytes, sizeof bytes, (uint64_t)s->ledger.workspace),
		100 * (double)s->ledger.workspace / (double)s->total);
	if (s->without_cudnn < s->ledger.workspace)
		fprintf(out, "  for cuDNN's attention; built without cuDNN %s",
			text_bytes(bytes, sizeof bytes, (uint64_t)s->without_cudnn));
	fprintf(out, "\n    %-14s %10s  %3.0f%%\n", "overhead", text_bytes(bytes, sizeof bytes, (uint64_t)s->overhead),
		100 * (double)s->overhead / (double)s->total);
}

static void stages(const struct plan *p, FILE *out)
{
	char bytes[32];
	if (p->stages == 1)
		return;
	fprintf(out, "  stages     layers, memory, computing, idle:\n");
	for (int i = 0; i < p->stages; i++) {
		const struct plan_stage *s = &p->stage[i];
		bool shown = i < 2 || i >= p->stages - 2 || i == p->fullest;
		if (shown)
			fprintf(out, "    %4d  %4lld  %10s  %8.3f s  %8.3f s\n", i, (long long)s->layers,
				text_bytes(bytes, sizeof bytes, (uint64_t)s->total),
				s->time.seconds[CAUSE_COMPUTE] + s->time.seconds[CAUSE_OPTIMIZER], s->time.seconds[CAUSE_BUBBLE]);
		else if (i == 2)
			fprintf(out, "     ...\n");
	}
}

static void seconds(const struct plan *p, FILE *out)
{
	char tokens[32];
	fprintf(out, "  step       %.4g s, %s tokens/s, %.1f TFLOP/s a device, %.1f%% of the peak (%.1f%% with what is computed again)\n",
		p->step_seconds, text_si(tokens, sizeof tokens, p->tokens_per_second), p->tflops_per_device, 100 * p->mfu,
		100 * p->hardware_utilization);
	for (int i = 0; i < CAUSES; i++)
		fprintf(out, "    %-14s %8.4g s  %3.0f%%\n", simulate_cause((enum cause)i), p->seconds[i],
			100 * p->seconds[i] / p->step_seconds);
}

static void traffic(const struct plan *p, FILE *out)
{
	static const char *const axes[] = {"tensor", "context", "data", "pipeline", "embedding"};
	char bytes[32];
	fprintf(out, "  traffic    of a step and device:");
	const char *comma = "";
	for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
		int64_t moved = plan_traffic(p, axes[i]);
		if (moved == 0)
			continue;
		fprintf(out, "%s %s %s", comma, axes[i], text_bytes(bytes, sizeof bytes, (uint64_t)moved));
		comma = ",";
	}
	fprintf(out, "%s\n", *comma ? "" : " none");
}

/* What takes most that could be less. */
static void help(const struct plan *p, FILE *out)
{
	const struct parallel_settings *s = &p->config->parallel;
	const struct plan_stage *full = &p->stage[p->fullest];
	double total = (double)full->total;
	if (!p->fits) {
		double activations = (double)full->ledger.arena[MEMORY_ACTIVATIONS], state = (double)full->ledger.arena[MEMORY_OPTIMIZER] +
				 (double)full->ledger.arena[MEMORY_GRADIENTS] + (double)full->ledger.arena[MEMORY_WEIGHTS];
		fprintf(out, "  would help to fit:");
		if (activations > 0.2 * total && s->recompute < RECOMPUTE_FULL)
			fprintf(out, " parallel.recompute = %s;", s->recompute == RECOMPUTE_NONE ? "selective" : "full");
		if (activations > 0.2 * total && p->config->batch.micro > 1)
			fprintf(out, " a smaller batch.micro;");
		if (state > 0.4 * total)
			fprintf(out, " more tensor or pipeline ranks: weights, gradients and optimizer are %.0f%%;", 100 * state / total);
		fprintf(out, " --search finds what fits\n");
		return;
	}
	int most = CAUSE_TENSOR;
	for (int i = CAUSE_TENSOR; i < CAUSES; i++)
		if (p->seconds[i] > p->seconds[most])
			most = i;
	double part = p->seconds[most] / p->step_seconds;
	if (part < 0.03)
		return;
	static const char *const advice[CAUSES] = {
		[CAUSE_TENSOR] = "fewer tensor ranks, or a larger micro-batch", [CAUSE_CONTEXT] = "fewer context ranks",
		[CAUSE_PIPELINE] = "fewer stages, or a faster network",
		[CAUSE_DATA] = "a larger global batch, or fewer data ranks with more stages",
		[CAUSE_BUBBLE] = "more micro-batches (a larger global or a smaller micro batch), interleaved chunks, or zero-bubble",
		[CAUSE_OPTIMIZER] = "more ranks to share the optimizer's state, or a larger global batch",
	};
	fprintf(out, "  would help %s takes %.0f%%: %s\n", simulate_cause((enum cause)most), 100 * part, advice[most]);
}

static void constant(void *context, const char *key, const struct hardware_number *n)
{
	fprintf(context, "    %-28s %10.5g  %-9s  %s\n", key, n->value, hardware_mark_name(n->mark), n->source);
}

static void way(void *context, const char *key, double value)
{
	fprintf(context, "    %-22s %g\n", key, value);
}

void plan_report(const struct plan *p, FILE *out)
{
	head(p, out);
	memory(p, out);
	stages(p, out);
	seconds(p, out);
	traffic(p, out);
	help(p, out);
	fprintf(out, "  constants  of %s:\n", p->hardware->name);
	hardware_each(p->hardware, constant, out);
	if (strcmp(p->stack->name, "mtrain") == 0)
		return;
	fprintf(out, "  stack      %s:\n", p->stack->name);
	stack_each(p->stack, way, out);
	if (*p->stack->fit)
		fprintf(out, "    fitted on %s\n", p->stack->fit);
}

#include "plan/search.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"

static const char *const schedules[] = {"1f1b", "interleaved", "zero-bubble"};
static const char *const recomputes[] = {"none", "selective", "full", "auto"};

static void row(const struct search_layout *l, FILE *out)
{
	char memory[32];
	fprintf(out, "  %5lld %7lld %6lld %8lld %6lld %5lld  %-11s %-9s %-9s %10s", (long long)l->data, (long long)l->context,
		(long long)l->tensor, (long long)l->pipeline, (long long)l->chunks, (long long)l->micro, schedules[l->schedule],
		recomputes[l->recompute], l->sharded ? "sharded" : "whole",
		l->memory ? text_bytes(memory, sizeof memory, (uint64_t)l->memory) : "-");
	if (l->seconds > 0)
		fprintf(out, " %9.4g s  %4.1f%%\n", l->seconds, 100 * l->mfu);
	else if (l->sketch > 0 && !l->beaten)
		fprintf(out, " about %.3g s\n", l->sketch);
	else
		fprintf(out, "  %s\n", l->reason);
}

static void where(const struct search_layout *l, FILE *out)
{
	fprintf(out, "data %lld x context %lld x tensor %lld x pipeline %lld", (long long)l->data, (long long)l->context,
		(long long)l->tensor, (long long)l->pipeline);
	if (l->chunks > 1)
		fprintf(out, ", %lld chunks", (long long)l->chunks);
	fprintf(out, "\n");
}

void search_report(const struct search *s, FILE *out)
{
	int fit = 0, shown = 0;
	fprintf(out, "  %5s %7s %6s %8s %6s %5s  %-11s %-9s %-9s %10s %11s  %5s\n", "data", "context", "tensor",
		"pipeline", "chunks", "micro", "schedule", "recompute", "optimizer", "memory", "step", "mfu");
	for (int i = 0; i < s->ranked; i++)
		row(&s->list[i], out);
	for (int i = 0; i < s->count; i++)
		fit += s->list[i].sketch > 0;
	fprintf(out, "  %d layouts on %lld devices: %d were found to fit, %d of these were planned in full\n", s->count, (long long)s->devices, fit, s->ranked);
	for (int i = s->ranked; i < s->count && shown < 8; i++) {
		if (!*s->list[i].reason || (shown > 0 && strcmp(s->list[i].reason, s->list[i - 1].reason) == 0))
			continue;
		if (shown++ == 0)
			fprintf(out, "  some of those that are out, and why:\n");
		row(&s->list[i], out);
	}
	fprintf(out, "  fewest devices on which it fits%s: %lld, ", s->fewest_layout.seconds > 0 ? "" : " (full recompute, micro-batch 1)",
		(long long)s->fewest);
	where(&s->fewest_layout, out);
	fprintf(out, "  longest sequence that fits on %lld devices: %lld, ", (long long)s->devices, (long long)s->longest);
	where(&s->longest_layout, out);
}

static cJSON *layout(const struct search_layout *l)
{
	cJSON *o = json_put_object(NULL, NULL);
	json_put_count(o, "data", l->data);
	json_put_count(o, "context", l->context);
	json_put_count(o, "tensor", l->tensor);
	json_put_count(o, "pipeline", l->pipeline);
	json_put_count(o, "chunks", l->chunks);
	json_put_count(o, "micro", l->micro);
	json_put_text(o, "schedule", schedules[l->schedule]);
	json_put_text(o, "recompute", recomputes[l->recompute]);
	json_put_flag(o, "shard_optimizer", l->sharded);
	json_put_count(o, "memory", l->memory);
	if (l->seconds > 0) {
		json_put_number(o, "step_seconds", l->seconds);
		json_put_number(o, "mfu", l->mfu);
	}
	if (l->sketch > 0)
		json_put_number(o, "sketch_seconds", l->sketch);
	if (*l->reason)
		json_put_text(o, "reason", l->reason);
	return o;
}

cJSON *search_json(const struct search *s)
{
	cJSON *all = json_put_object(NULL, NULL), *list = json_put_array(all, "layouts");
	json_put_count(all, "devices", s->devices);
	json_put_count(all, "ranked", s->ranked);
	json_put_count(all, "fewest_devices", s->fewest);
	json_put(all, "fewest_layout", layout(&s->fewest_layout));
	json_put_count(all, "longest_sequence", s->longest);
	json_put(all, "longest_layout", layout(&s->longest_layout));
	for (int i = 0; i < s->count; i++)
		json_put(list, NULL, layout(&s->list[i]));
	return all;
}

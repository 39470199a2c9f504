#include "plan/timeline.h"

#include <stdlib.h>

#include "base/file.h"

void timeline_open(struct timeline *t)
{
	*t = (struct timeline){.first = true};
	t->text = open_memstream(&t->data, &t->size);
	check(t->text);
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->text);
}

static void comma(struct timeline *t)
{
	fputs(t->first ? "\n" : ",\n", t->text);
	t->first = false;
}

void timeline_box(void *context, const struct simulated_box *b)
{
	struct timeline *t = context;
	if (b->end <= b->begin)
		return;
	comma(t);
	fprintf(t->text, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f", b->stage, (int)b->queue, b->name,
		b->begin * 1e6, (b->end - b->begin) * 1e6);
	if (b->micro >= 0)
		fprintf(t->text, ",\"args\":{\"micro\":%d,\"chunk\":%d}", b->micro, b->chunk);
	fputs("}", t->text);
}

bool timeline_close(struct timeline *t, const char *path, int stages, struct error *e)
{
	for (int i = 0; i < stages; i++) {
		comma(t);
		fprintf(t->text, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"stage %d\"}}", i, i);
		for (int q = 0; q < QUEUES; q++) {
			comma(t);
			fprintf(t->text, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", i, q,
				queue_name((enum queue)q));
		}
	}
	fputs("\n]}\n", t->text);
	fclose(t->text);
	struct error why;
	bool good = !path || file_replace(path, t->data, t->size, CODE_USAGE, &why) ||
		    error_set(e, CODE_USAGE, "--trace: cannot write %.1000s", why.text);
	free(t->data);
	return good;
}

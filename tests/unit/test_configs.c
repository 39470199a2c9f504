/* The configs that come with mtrain: each loads, checks, and has as many parameters as its name says. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "train/config.h"

static const char *folder;

/* Written out apart from the model's own table: embeddings, blocks, final norm, a head of its own. A config here is as GPT or,
 * without biases, as Llama. */
static double parameters(const struct model_settings *m)
{
	double width = (double)m->hidden, inner = (double)m->ffn, position = m->position == POSITION_LEARNED;
	double attention = 4 * width * width + 4 * width, mlp = 2 * width * inner + inner + width, norms = 4 * width;
	if (!m->bias) {
		attention = 4 * width * width;
		mlp = (m->activation == ACTIVATION_SWIGLU ? 3 : 2) * width * inner;
		norms = 2 * width;
	}
	return ((double)m->vocab * (m->tied ? 1 : 2) + position * (double)m->sequence) * width +
	       (double)m->layers * (attention + mlp + norms) + norms / 2;
}

static void test_each(void **state)
{
	static const char *const sections[] = {"run",       "model", "parallel", "batch",      "precision",
					       "optimizer", "data",  "eval",     "checkpoint", NULL};
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, alphasort), files = 0;
	assert_true(count > 0);
	for (int i = 0; i < count; i++) {
		char path[PATH_ROOM], name[32], *dot = strrchr(entries[i]->d_name, '.');
		struct error e = {0};
		struct config c;
		int64_t layers_of[256];
		if (!dot || strcmp(dot, ".ini") != 0) {
			free(entries[i]);
			continue;
		}
		files++;
		assert_true(file_join(path, folder, entries[i]->d_name));
		if (!config_load(&c, path, NULL, 0, &e) || !config_require(&c, sections, &e) || !config_check(&c, &e) ||
		    !mesh_stages(layers_of, (int)c.parallel.pipeline, (int)c.parallel.chunks, c.model.layers, 0, c.parallel.stages, &e))
			fail_msg("%s", e.text);
		if (strncmp(entries[i]->d_name, "gpt", 3) == 0) { /* gpt1.3b.ini: 1.3 G */
			int64_t size;
			snprintf(name, sizeof name, "%.*s%c", (int)(dot - entries[i]->d_name - 4), entries[i]->d_name + 3,
				 dot[-1] == 't' ? 'T' : dot[-1] == 'b' ? 'G' : 'M');
			assert_true(text_to_count(name, &size));
			if (size == 1700000000)
				size = 1652000000; /* the SC'21 table's own name for 1.652 G */
			if (fabs(parameters(&c.model) / (double)size - 1) > 0.025)
				fail_msg("%s has %.4g parameters", path, parameters(&c.model));
		}
		/* The number of its published weights. */
		if (strcmp(entries[i]->d_name, "baichuan2-13b.ini") == 0 && parameters(&c.model) != 13896668160.0)
			fail_msg("%s has %.0f parameters", path, parameters(&c.model));
		config_finish(&c);
		free(entries[i]);
	}
	free(entries);
	assert_true(files >= 7);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each)};
	folder = argc > 1 ? argv[1] : "configs";
	return cmocka_run_group_tests(tests, NULL, NULL);
}

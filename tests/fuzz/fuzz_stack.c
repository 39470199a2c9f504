/* Stack files: what is refused says why; what is accepted has no constant below its least. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cost/stack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stack s;
	struct error e = {0};
	if (!stack_parse(&s, "fuzz.ini", (const char *)data, size, &e)) {
		if (e.code == 0 || strlen(e.text) == 0)
			abort();
		return 0;
	}
	if (!(s.product_time >= 0 && s.memory_time >= 0 && s.communication_time >= 0 && s.op_us >= 0))
		abort();
	return 0;
}

/* Hardware files: what is refused says why; on what is accepted every time is a number, and not below 0. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cost/hardware.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_time(double seconds)
{
	if (isnan(seconds) || seconds < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hardware h;
	struct error e = {0};
	struct hardware_group node = {4, 4, 1}, apart = {64, 2, 4};
	if (!hardware_parse(&h, "fuzz.ini", (const char *)data, size, &e)) {
		if (e.code == 0 || strlen(e.text) == 0)
			abort();
		return 0;
	}
	is_time(hardware_gemm(&h, F16, 2, 100, 4096, 1000));
	is_time(hardware_attention(&h, F16, 1e12, 64, 2048, true));
	is_time(hardware_stream(&h, 1e9));
	is_time(hardware_launch(&h));
	for (int move = HARDWARE_ALL_REDUCE; move <= HARDWARE_BROADCAST; move++) {
		is_time(hardware_collective(&h, (enum hardware_move)move, node, 1e9));
		is_time(hardware_collective(&h, (enum hardware_move)move, apart, 1e9));
	}
	is_time(hardware_exchange(&h, false, 1e6));
	return 0;
}

/* The cut of an all-reduce, for more ranks than fit here: slices cover a round, and what the others send of one fits the scratch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/mpi_cut.h"

static void test_cut(void **state)
{
	enum { SCRATCH = 2 << 20 };
	for (int ranks = 2; ranks < 40000; ranks += ranks < 600 ? 1 : 37)
		for (size_t size = 2; size <= 8; size *= 2) {
			int64_t room = mpi_cut_room(SCRATCH, ranks, size);
			const int64_t rounds[] = {1, 17, ranks, 16LL * ranks + 1, ranks * room - 1, ranks * room};
			assert_true(room > 0);
			for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
				if (rounds[i] > ranks * room)
					continue;
				int64_t slice = mpi_cut_slice(rounds[i], ranks, room);
				assert_true(slice * ranks >= rounds[i]);
				assert_true((ranks - 1) * slice * (int64_t)size <= SCRATCH);
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut),
	};
	return cmocka_run_group_tests_name("mpi_cut", tests, NULL, NULL);
}

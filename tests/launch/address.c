/* Reaching another rank by TCP over whichever of its interfaces works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/address.h"

static struct address address;
static int listener = -1;

static int open_listener(void **state)
{
	struct error e;
	return address_listen(&address, &listener, 8, &e) ? 0 : -1;
}

static int close_listener(void **state)
{
	return close(listener);
}

static void expect_reached(int fd)
{
	char byte = 0;
	assert_true(fd >= 0);
	int other = address_accept(listener, 2);
	assert_true(other >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	for (int i = 0; i < 1000 && read(other, &byte, 1) != 1; i++)
		usleep(1000);
	assert_int_equal(byte, 'x');
	close(fd);
	close(other);
}

static void test_same_machine(void **state)
{
	struct address here = address;
	here.count = 0; /* no interface but the loopback */
	expect_reached(address_connect(&here, 2, NULL, NULL));
}

/* From another machine the loopback is no way, whatever listens there. */
static void test_other_machine(void **state)
{
	struct address there = address;
	strcpy(there.machine, "another");
	if (there.count == 0)
		skip();
	expect_reached(address_connect(&there, 2, NULL, NULL));
	there.count = 0;
	assert_int_equal(address_connect(&there, 2, NULL, NULL), -1);
}

/* An interface that nobody can be reached by comes first: the next is tried. */
static void test_next_interface(void **state)
{
	struct address there = address;
	strcpy(there.machine, "another");
	there.count = 2;
	there.list[0].family = 4;
	memcpy(there.list[0].bytes, (uint8_t[]){127, 255, 255, 255}, 4); /* a broadcast address takes no connection */
	there.list[1].family = 4;
	memcpy(there.list[1].bytes, (uint8_t[]){127, 0, 0, 1}, 4);
	expect_reached(address_connect(&there, 1, NULL, NULL));
}

static bool second_only(int fd, void *context)
{
	return ++*(int *)context == 2;
}

/* Something else answers on the first interface: who greets decides. */
static void test_greeting(void **state)
{
	struct address there = address;
	int calls = 0;
	strcpy(there.machine, "another");
	there.count = 2;
	for (int i = 0; i < 2; i++) {
		there.list[i].family = 4;
		memcpy(there.list[i].bytes, (uint8_t[]){127, 0, 0, 1}, 4);
	}
	int fd = address_connect(&there, 2, second_only, &calls);
	assert_int_equal(calls, 2);
	close(address_accept(listener, 2)); /* the first one, refused */
	expect_reached(fd);
}

static void test_gone(void **state)
{
	struct address other;
	struct error e;
	int fd;
	assert_true(address_listen(&other, &fd, 1, &e));
	assert_true(other.token != address.token);
	close(fd);
	assert_int_equal(address_connect(&other, 0.5, NULL, NULL), -1);
	assert_int_equal(address_accept(listener, 0.01), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_machine),
		cmocka_unit_test(test_other_machine),
		cmocka_unit_test(test_next_interface),
		cmocka_unit_test(test_greeting),
		cmocka_unit_test(test_gone),
	};
	return cmocka_run_group_tests(tests, open_listener, close_listener);
}

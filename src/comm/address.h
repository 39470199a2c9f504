/* address.h: where a rank can be reached by TCP, as plain bytes that can be gathered over ranks.
 *
 * A machine has several interfaces and nobody says which of them the others see; so a rank offers all its addresses,
 * and who connects tries one after the other. Ranks on one machine meet on the loopback interface.
 *
 * Used by control.c. */
#ifndef MTRAIN_COMM_ADDRESS_H
#define MTRAIN_COMM_ADDRESS_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

enum { ADDRESSES = 8, ADDRESS_HOST = 64 };

struct address {
	char host[ADDRESS_HOST];      /* name, for messages */
	char machine[64];             /* equal where the loopback interface is the same */
	uint16_t port;
	uint8_t count;
	struct {
		uint8_t family;       /* 4 or 6 */
		uint8_t bytes[16];
	} list[ADDRESSES];
	uint64_t token;               /* a random number: who knows it belongs to the job */
};

/* Opens a listening socket on all interfaces, with room for `backlog` connections that nobody has taken yet, and
 * fills *a. Fails: CODE_MACHINE. */
bool address_listen(struct address *a, int *fd, int backlog, struct error *e);

/* A connection to the address, or −1; each of its interfaces is given `seconds`. When `greet` is there, an interface
 * counts only if greet(fd, context) is true: another service may hold that port on another machine. */
int address_connect(const struct address *a, double seconds, bool (*greet)(int fd, void *context), void *context);

/* Waits up to `seconds` for the next connection; −1: none came. */
int address_accept(int listener, double seconds);

#endif

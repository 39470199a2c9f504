#include "comm/meet.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* The first words on a connection, both ways. */
struct hello {
	uint64_t token;
	uint64_t bytes;
	int32_t rank, size;
	uint32_t call;
	uint32_t zero;
};

static const double FOREVER = 1e9, RETRY = 0.05, PATIENCE = 10; /* seconds for one connection's words */

static uint32_t calls; /* of meet_gather in this process: the same on every rank */

/* Whether the socket is ready before the clock says `until`. */
static bool ready(int fd, short events, double until)
{
	for (;;) {
		double left = until - clock_now();
		struct pollfd p = {.fd = fd, .events = events};
		int n = poll(&p, 1, left > 1 ? 1000 : left > 0 ? (int)(left * 1000) + 1 : 0);
		if (n > 0)
			return true;
		if ((n < 0 && errno != EINTR) || left <= 0)
			return false;
	}
}

static bool give(int fd, const void *data, size_t bytes, double until)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			at += (size_t)n;
		else if ((errno != EAGAIN && errno != EINTR) || !ready(fd, POLLOUT, until))
			return false;
	}
	return true;
}

static bool take(int fd, void *data, size_t bytes, double until)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = recv(fd, (char *)data + at, bytes - at, MSG_DONTWAIT);
		if (n > 0)
			at += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !ready(fd, POLLIN, until))
			return false;
	}
	return true;
}

/* A socket that listens on all interfaces at the place's port; −1: errno says why not. */
static int listen_at(uint16_t port, int backlog)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	int on = 1, off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool six = fd >= 0;
	if (!six)
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (six)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (bind(fd, six ? (struct sockaddr *)&any : (struct sockaddr *)&any4, six ? sizeof any : sizeof any4) == 0 &&
	    listen(fd, backlog) == 0)
		return fd;
	int why = errno;
	close(fd);
	errno = why;
	return -1;
}

static bool late(int came, int size, const struct meet_place *p, double seconds, struct error *e)
{
	return error_set(e, CODE_PEER, "%d of %d ranks came to rank 0 on TCP port %d within %g s", came, size, p->port, seconds);
}

/* Rank 0: takes everybody's bytes, then gives all of them all. */
static bool wait_for_all(const struct meet_place *p, int size, char *out, size_t bytes, double seconds, double until,
			 struct error *e)
{
	int came = 1, listener;
	int *fds = malloc((size_t)size * sizeof *fds);
	check(fds);
	for (int r = 0; r < size; r++)
		fds[r] = -1;
	while ((listener = listen_at(p->port, size)) < 0 && errno == EADDRINUSE && clock_now() < until)
		poll(NULL, 0, (int)(RETRY * 1000));
	if (listener < 0) {
		free(fds);
		return error_set(e, CODE_MACHINE, "TCP port %d: %s; MASTER_PORT can name another", p->port, strerror(errno));
	}
	struct hello mine = {.token = p->token, .bytes = bytes, .size = size, .call = calls}, h;
	while (came < size && ready(listener, POLLIN, until)) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		double soon = clock_now() + PATIENCE < until ? clock_now() + PATIENCE : until;
		if (fd >= 0 && take(fd, &h, sizeof h, soon) && h.token == p->token && h.bytes == bytes && h.size == size &&
		    h.call == calls && h.rank > 0 && h.rank < size && fds[h.rank] < 0 &&
		    take(fd, out + (size_t)h.rank * bytes, bytes, soon)) {
			fds[h.rank] = fd;
			came++;
		} else if (fd >= 0) {
			close(fd);
		}
	}
	bool all = came == size;
	for (int r = 1; r < size; r++) {
		if (all && (!give(fds[r], &mine, sizeof mine, until) || !give(fds[r], out, bytes * (size_t)size, until)))
			came--;
		if (fds[r] >= 0)
			close(fds[r]);
	}
	close(listener);
	free(fds);
	return came == size || late(came, size, p, seconds, e);
}

static int connect_once(const struct addrinfo *list)
{
	int on = 1;
	for (; list; list = list->ai_next) {
		int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0) {
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
			return fd;
		}
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* The others: until rank 0 is there and answers. What is closed before the answer was another call's or another job's. */
static bool go_there(const struct meet_place *p, int rank, int size, char *out, const void *in, size_t bytes, double seconds,
		     double until, struct error *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	struct hello mine = {.token = p->token, .bytes = bytes, .rank = rank, .size = size, .call = calls}, h;
	char port[8];
	snprintf(port, sizeof port, "%d", p->port);
	int failed = getaddrinfo(p->host, port, &hints, &list);
	if (failed)
		return error_set(e, CODE_MACHINE, "rank 0's machine %s: %s", p->host, gai_strerror(failed));
	for (bool good = false; !good;) {
		int fd = connect_once(list);
		good = fd >= 0 && give(fd, &mine, sizeof mine, until) && give(fd, in, bytes, until) &&
		       take(fd, &h, sizeof h, until) && h.token == p->token && h.call == calls && h.size == size &&
		       h.bytes == bytes && take(fd, out, bytes * (size_t)size, until);
		if (fd >= 0)
			close(fd);
		if (!good && clock_now() >= until) {
			freeaddrinfo(list);
			return error_set(e, CODE_PEER, "rank 0 did not answer on %s, TCP port %d, within %g s", p->host, p->port, seconds);
		}
		if (!good)
			poll(NULL, 0, (int)(RETRY * 1000));
	}
	freeaddrinfo(list);
	return true;
}

bool meet_gather(const struct meet_place *p, int rank, int size, void *out, const void *in, size_t bytes, double seconds,
		 struct error *e)
{
	double until = clock_now() + (seconds > 0 ? seconds : FOREVER);
	calls++;
	if (rank > 0)
		return go_there(p, rank, size, out, in, bytes, seconds, until, e);
	memcpy(out, in, bytes);
	return wait_for_all(p, size, out, bytes, seconds, until, e);
}

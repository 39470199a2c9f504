#include "comm/address.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The machine's boot and the network namespace: containers on one machine share the first but not the second. */
static void fill_machine(struct address *a)
{
	char boot[40] = "";
	struct stat space = {0};
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
	if (f) {
		if (!fgets(boot, sizeof boot, f))
			boot[0] = '\0';
		boot[strcspn(boot, "\n")] = '\0';
		fclose(f);
	}
	if (stat("/proc/self/ns/net", &space) == 0 && boot[0])
		snprintf(a->machine, sizeof a->machine, "%s/%llu", boot, (unsigned long long)space.st_ino);
}

static void add(struct address *a, const struct sockaddr *s)
{
	if (a->count == ADDRESSES)
		return;
	if (s->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)s;
		a->list[a->count].family = 4;
		memcpy(a->list[a->count++].bytes, &v4->sin_addr, 4);
	} else if (s->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)s;
		if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
			return; /* means nothing without the interface it belongs to */
		a->list[a->count].family = 6;
		memcpy(a->list[a->count++].bytes, &v6->sin6_addr, 16);
	}
}

static void fill_interfaces(struct address *a)
{
	struct ifaddrs *all;
	if (getifaddrs(&all) != 0)
		return;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_addr && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK))
			add(a, i->ifa_addr);
	freeifaddrs(all);
}

/* One socket for IPv6 and IPv4, or IPv4 alone where the machine has no IPv6. */
static int bound_socket(void)
{
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
		    bind(fd, (struct sockaddr *)&any6, sizeof any6) == 0)
			return fd;
		close(fd);
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

bool address_listen(struct address *a, int *out, int backlog, struct error *e)
{
	struct sockaddr_storage bound;
	socklen_t length = sizeof bound;
	int fd = bound_socket();

	memset(a, 0, sizeof *a);
	if (fd < 0 || listen(fd, backlog) != 0 || getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
		error_set(e, CODE_MACHINE, "cannot listen for the other ranks: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	a->port = bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
					      : ((struct sockaddr_in *)&bound)->sin_port;
	gethostname(a->host, sizeof a->host - 1);
	fill_machine(a);
	fill_interfaces(a);
	if (getrandom(&a->token, sizeof a->token, 0) != sizeof a->token) {
		close(fd);
		return error_set(e, CODE_MACHINE, "no random number: %s", strerror(errno));
	}
	*out = fd;
	return true;
}

static bool ready(int fd, short events, double seconds)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n;
	do
		n = poll(&p, 1, (int)(seconds * 1000));
	while (n < 0 && errno == EINTR);
	return n > 0;
}

static int connect_to(int family, const void *bytes, uint16_t port, double seconds)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
	int on = 1, failed = 0;
	socklen_t length = sizeof failed;
	memcpy(&v6.sin6_addr, bytes, family == 6 ? 16 : 4);
	memcpy(&v4.sin_addr, bytes, 4);
	const struct sockaddr *to = family == 6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;

	int fd = socket(family == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, to, family == 6 ? sizeof v6 : sizeof v4) != 0)
		failed = errno != EINPROGRESS || !ready(fd, POLLOUT, seconds) ||
			 getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length) != 0 || failed;
	if (failed) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

int address_connect(const struct address *a, double seconds, bool (*greet)(int fd, void *context), void *context)
{
	struct address here = {0};
	fill_machine(&here);
	bool near = here.machine[0] && strncmp(here.machine, a->machine, sizeof here.machine) == 0;
	for (int i = near ? -1 : 0; i < a->count; i++) {
		uint32_t loopback = htonl(INADDR_LOOPBACK);
		int fd = i < 0 ? connect_to(4, &loopback, a->port, seconds)
			       : connect_to(a->list[i].family, a->list[i].bytes, a->port, seconds);
		if (fd < 0)
			continue;
		if (!greet || greet(fd, context))
			return fd;
		close(fd);
	}
	return -1;
}

int address_accept(int listener, double seconds)
{
	int on = 1;
	if (!ready(listener, POLLIN, seconds))
		return -1;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

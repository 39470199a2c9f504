#include "comm/star.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* Seconds for one interface to accept a connection, for a greeting to be answered, and for a rank to show that it is
 * still there. */
static const double CONNECT_LIMIT = 3, GREET_LIMIT = 10, REACH_LIMIT = 0.5;

void star_say(const struct star *s, struct star_link *l, enum star_word word)
{
	struct star_message m = {word, s->rank, s->addresses[0].token};
	if (!l->closed && send(l->fd, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE)
		shutdown(l->fd, SHUT_RDWR); /* star_hear finds it closed */
}

enum star_word star_hear(struct star_link *l)
{
	if (l->closed)
		return STAR_NOTHING;
	while (l->have < sizeof l->in) {
		ssize_t n = recv(l->fd, (char *)&l->in + l->have, sizeof l->in - l->have, MSG_DONTWAIT);
		if (n > 0) {
			l->have += (size_t)n;
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return STAR_NOTHING;
		l->closed = true;
		return STAR_CLOSED;
	}
	l->have = 0;
	return l->in.word > STAR_CLOSED ? (enum star_word)l->in.word : STAR_NOTHING;
}

/* Whether the next word, within `seconds`, is a greeting of this job. */
static bool hear_hello(struct star_link *l, uint64_t token, double seconds)
{
	double until = clock_now() + seconds;
	for (;;) {
		enum star_word word = star_hear(l);
		double left = until - clock_now();
		if (word != STAR_NOTHING)
			return word == STAR_HELLO && l->in.token == token;
		if (left <= 0)
			return false;
		struct pollfd p = {.fd = l->fd, .events = POLLIN};
		poll(&p, 1, (int)(left * 1000) + 1);
	}
}

static bool greet(int fd, void *context)
{
	struct star *s = context;
	struct star_link *l = &s->links[0];
	*l = (struct star_link){.fd = fd};
	star_say(s, l, STAR_HELLO);
	if (hear_hello(l, s->addresses[0].token, GREET_LIMIT))
		return true;
	l->fd = -1;
	return false;
}

void star_list(const struct star *s, bool self, const bool *here, char *text, size_t room)
{
	size_t at = 0;
	int named = 0, more = 0;
	for (int r = 0; r < s->size; r++) {
		if (r == 0 ? self : here[r - 1])
			continue;
		if (named < 8)
			at += (size_t)snprintf(text + at, room - at, "%s%d", named++ ? ", " : "", r);
		else
			more++;
	}
	if (more)
		snprintf(text + at, room - at, " and %d more", more);
}

/* A descriptor for every rank, and some for files. */
static void raise_descriptor_limit(int size)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= (rlim_t)size + 256)
		return;
	r.rlim_cur = r.rlim_max < (rlim_t)size + 256 ? r.rlim_max : (rlim_t)size + 256;
	setrlimit(RLIMIT_NOFILE, &r);
}

static bool take_all(struct star *s, double seconds, struct error *e)
{
	double until = clock_now() + seconds;
	int joined = 0;
	raise_descriptor_limit(s->size);
	while (joined < s->count && clock_now() < until) {
		struct star_link l = {.fd = address_accept(s->listener, until - clock_now())};
		if (l.fd < 0)
			continue;
		if (hear_hello(&l, s->addresses[0].token, GREET_LIMIT) && l.in.rank > 0 && l.in.rank < s->size &&
		    s->links[l.in.rank - 1].fd < 0) {
			l.rank = l.in.rank;
			star_say(s, &l, STAR_HELLO);
			s->links[l.rank - 1] = l;
			joined++;
		} else {
			close(l.fd);
		}
	}
	if (joined == s->count)
		return true;
	char missing[128];
	bool *here = calloc((size_t)s->count, sizeof *here);
	if (!here)
		die(CODE_MACHINE, "out of memory");
	for (int i = 0; i < s->count; i++)
		here[i] = s->links[i].fd >= 0;
	star_list(s, true, here, missing, sizeof missing);
	free(here);
	return error_set(e, CODE_MACHINE, "rank %s did not connect to rank 0 on %s, TCP port %d, within %g s", missing,
			 s->addresses[0].host, (s->addresses[0].port >> 8 | s->addresses[0].port << 8) & 0xffff, seconds);
}

bool star_open(struct star *s, struct comm *world, double seconds, struct error *e)
{
	struct address own;
	*s = (struct star){.rank = comm_rank(world), .size = comm_size(world), .listener = -1};
	s->count = s->rank == 0 ? s->size - 1 : 1;
	s->addresses = calloc((size_t)s->size, sizeof *s->addresses);
	s->links = calloc((size_t)s->count + 1, sizeof *s->links);
	if (!s->addresses || !s->links)
		die(CODE_MACHINE, "out of memory");
	for (int i = 0; i < s->count; i++)
		s->links[i].fd = -1;

	address_listen(&own, &s->listener, s->size, e);
	if (comm_agree(world, e)) {
		comm_host_gather(world, s->addresses, &own, sizeof own);
		if (s->rank == 0)
			take_all(s, seconds, e);
		else if (address_connect(&s->addresses[0], CONNECT_LIMIT, greet, s) < 0)
			error_set(e, CODE_MACHINE, "cannot connect to rank 0 on %s by any of its %d addresses",
				  s->addresses[0].host, s->addresses[0].count);
		if (comm_agree(world, e))
			return true;
	}
	star_close(s);
	return false;
}

void star_close(struct star *s)
{
	for (int i = 0; i < s->count; i++)
		if (s->links[i].fd >= 0)
			close(s->links[i].fd);
	if (s->listener >= 0)
		close(s->listener);
	free(s->addresses);
	free(s->links);
}

bool star_reachable(const struct star *s, int rank)
{
	int fd = address_connect(&s->addresses[rank], REACH_LIMIT, NULL, NULL);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

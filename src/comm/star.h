/* star.h: one TCP connection from every rank to rank 0, and the few words that are said over them.
 *
 * A message is 16 bytes, so that it is sent whole or not at all and nothing needs buffers. The addresses of all
 * ranks are known everywhere, and every rank keeps a listening socket until it ends: when rank 0 is gone, being able
 * to connect to a rank is how the others know that it is still there.
 *
 * Owns the sockets. Used by control.c, by one thread at a time. */
#ifndef MTRAIN_COMM_STAR_H
#define MTRAIN_COMM_STAR_H

#include "comm/address.h"
#include "comm/comm.h"

enum star_word {
	STAR_NOTHING,
	STAR_CLOSED,  /* the connection is gone */
	STAR_HELLO,   /* the first word, and its answer */
	STAR_ALIVE,   /* said every few seconds */
	STAR_CAUSE,   /* to rank 0: I am dying of a cause, may I speak? */
	STAR_SPEAK,   /* from rank 0: yes */
	STAR_END,     /* somebody else speaks, end in silence */
	STAR_GOODBYE, /* I am done; to rank 0: what closes from here on is no loss */
	STAR_DONE,    /* from rank 0: everybody is */
};

struct star_message {
	uint32_t word;
	int32_t rank;
	uint64_t token;
};

struct star_link {
	int fd;      /* −1: never made */
	int rank;    /* at the other end */
	bool closed; /* by the other end */
	size_t have;
	struct star_message in; /* its first `have` bytes are here */
};

struct star {
	int rank, size, listener;
	struct address *addresses; /* [size] */
	struct star_link *links;   /* rank 0: [size − 1], of rank i + 1; others: [1] */
	int count;
};

/* Collective over the world; `seconds` for the others to connect. Fails: CODE_MACHINE, alike on every rank. */
bool star_open(struct star *s, struct comm *world, double seconds, struct error *e);
void star_close(struct star *s);

/* Says a word if the other end still takes it. */
void star_say(const struct star *s, struct star_link *l, enum star_word word);

/* The next word that has come, without waiting. STAR_CLOSED comes once. */
enum star_word star_hear(struct star_link *l);

/* Whether a rank's process is still there: its listening socket answers. */
bool star_reachable(const struct star *s, int rank);

/* On rank 0: the ranks as text, "0, 4, 7 and 12 more", without rank 0 if self, without those where here[rank − 1]. */
void star_list(const struct star *s, bool self, const bool *here, char *text, size_t room);

#endif

/* shard_writer.h: writes a Megatron shard, PREFIX.bin + PREFIX.idx + PREFIX.json, of any size in little memory.
 *
 * Everything goes to PREFIX.*.tmp and takes its place at the end, so an existing shard is replaced by a whole one or
 * not at all; what a killed run leaves behind, the next one overwrites. The ids may be written from several threads,
 * each at its place; only the lengths come in order. Lengths go straight to their place in the index; offsets and
 * document boundaries follow from them at the end.
 *
 * Owns the open files. Used by tokenize. */
#ifndef MTRAIN_TRAIN_SHARD_WRITER_H
#define MTRAIN_TRAIN_SHARD_WRITER_H

#include <stdio.h>

#include "base/file.h"
#include "train/shard_facts.h"
#include "train/shard_token.h"

enum shard_writer_file { SHARD_WRITER_BIN, SHARD_WRITER_IDX, SHARD_WRITER_JSON, SHARD_WRITER_FILES };

struct shard_writer {
	char path[SHARD_WRITER_FILES][PATH_ROOM];
	char temp[SHARD_WRITER_FILES][PATH_ROOM];
	enum shard_token type;
	int bin;       /* descriptor of the temporary .bin */
	FILE *index;   /* the temporary .idx */
	int64_t tokens, sequences, documents;
	int64_t *joined; /* sequences that go on the document of the one before: rare, so they fit in memory */
	int64_t joined_count, joined_room;
};

/* Starts a shard; missing folders are made. Fails: CODE_USAGE: a prefix that cannot be one, another writer is at it;
 * CODE_MACHINE: the files cannot be made. */
bool shard_writer_open(struct shard_writer *w, const char *prefix, enum shard_token type, struct error *e);

/* The next sequence has `length` < 2³¹ tokens; `goes_on`: it belongs to the document of the sequence before it.
 * Gives the place of its first token. Not for several threads. */
int64_t shard_writer_add(struct shard_writer *w, int64_t length, bool goes_on);

/* Writes raw ids (little-endian, of the shard's type) at token place `begin`. For any thread. Fails: CODE_MACHINE. */
bool shard_writer_put(const struct shard_writer *w, int64_t begin, const void *raw, int64_t count, struct error *e);

/* Completes the three files, syncs them and moves them to their places, the index last. Facts: the counts are filled
 * in. Closes the writer, also on failure. Fails: CODE_MACHINE. */
bool shard_writer_finish(struct shard_writer *w, struct shard_facts *facts, struct error *e);

/* Closes the writer and removes what it wrote. */
void shard_writer_abandon(struct shard_writer *w);

#endif
